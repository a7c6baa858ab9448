"""Signatures read out of a package's sources, in a folder or a wheel, with nothing imported: it may not even import."""

from __future__ import annotations

import ast
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_DEEPEST = 8
"""How many imports a name is followed through."""

_LONGEST = 160
"""Characters of a value that are told."""


@dataclass(frozen=True)
class Found:
    """Where a name is defined, and what it is there: a function's parameters, a class's, or a value.

    text: without annotations, which nobody who calls it sees. node: the definition.
    """

    file: str
    text: str
    node: ast.AST

    @property
    def digest(self) -> str:
        return fingerprint(self.text)


def fingerprint(text: str) -> str:
    """A few characters that differ where the text does."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


class Sources:
    """The Python files of a package: of a folder that holds it, or of a wheel."""

    def __init__(self, place: Path) -> None:
        self._folder = place if place.is_dir() else None
        self._wheel = None if place.is_dir() else zipfile.ZipFile(place)
        self._read: dict[str, ast.Module | None] = {}

    def find(self, name: str) -> Found | None:
        """The definition of a dotted name, through whatever modules import it from one another."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if self._files(module):
                return self._in_module(module, parts[length:], 0)
        return None

    def text(self, file: str) -> str | None:
        """A file's text; None where there is no such file."""
        if self._folder is not None:
            path = self._folder / file
            return path.read_text(encoding="utf-8") if path.is_file() else None
        assert self._wheel is not None
        return self._wheel.read(file).decode() if file in self._names else None

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self._wheel.namelist() if self._wheel else ())

    def _files(self, module: str) -> list[str]:
        """The files of a module, sources before stubs."""
        stem = module.replace(".", "/")
        wanted = [f"{stem}.py", f"{stem}/__init__.py", f"{stem}.pyi", f"{stem}/__init__.pyi"]
        return [file for file in wanted if self._tree(file) is not None]

    def _tree(self, file: str) -> ast.Module | None:
        if file not in self._read:
            text = self.text(file)
            self._read[file] = None if text is None else _parsed(text)
        return self._read[file]

    def _in_module(self, module: str, path: list[str], depth: int) -> Found | None:
        files = self._files(module)
        if not path:
            return Found(files[0], "a module", ast.Pass()) if files else None
        for file in files:
            tree = self._tree(file)
            assert tree is not None, "it was just read"
            is_package = "/__init__." in file
            found = self._in_body(list(_statements(tree)), path, file, module, is_package, depth)
            if found is not None:
                return found
        inner = f"{module}.{path[0]}"
        return self._in_module(inner, path[1:], depth + 1) if files and self._files(inner) else None

    def _in_body(
        self, body: list[ast.stmt], path: list[str], file: str, module: str, is_package: bool, depth: int
    ) -> Found | None:
        name, *rest = path
        if depth > _DEEPEST:
            return None
        here = [statement for statement in body if _defines(statement, name)]
        for statement in sorted(here, key=_is_overload):
            if isinstance(statement, ast.ImportFrom):
                origin = _absolute(statement, module, is_package)
                original = next(a.name for a in statement.names if (a.asname or a.name) == name)
                if origin.split(".")[0] != module.split(".")[0]:
                    return Found(file, f"from {origin}", statement)  # another package is not looked into
                found = self._in_module(origin, [original, *rest], depth + 1)
            elif rest and isinstance(statement, ast.ClassDef):
                found = self._in_class(statement, rest, file, module, is_package, depth)
            else:
                found = None if rest else Found(file, described(statement), statement)
            if found is not None:
                return found
        for statement in body:
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                found = self._in_module(_absolute(statement, module, is_package), path, depth + 1)
                if found is not None:
                    return found
        return None

    def _in_class(
        self, definition: ast.ClassDef, path: list[str], file: str, module: str, is_package: bool, depth: int
    ) -> Found | None:
        """A member of a class, or of what it derives from."""
        own = self._in_body(list(_statements(definition)), path, file, module, is_package, depth + 1)
        if own is not None:
            return own
        for base in definition.bases:
            found = self._in_module(module, [*ast.unparse(base).split("."), *path], depth + 1)
            if found is not None:
                return found
        return None


def described(statement: ast.AST) -> str:
    """What a definition shows to whoever uses it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"({_parameters(statement.args)})"
    if isinstance(statement, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in statement.bases)
        return f"class({bases}) {described(maker) if (maker := constructor(statement)) else ''}".rstrip()
    value = getattr(statement, "value", None)
    if value is not None:
        text = f"= {ast.unparse(value)}"
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… {fingerprint(text)}"
    annotation = getattr(statement, "annotation", None)
    return "a module" if annotation is None else f": {ast.unparse(annotation)}"


def constructor(definition: ast.ClassDef) -> ast.FunctionDef | None:
    """The function by which a class is called: `__init__`, or what a dataclass makes of its fields."""
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return statement
    if not any("dataclass" in ast.unparse(decorator) for decorator in definition.decorator_list):
        return None
    fields = [s for s in definition.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    shown = ", ".join(ast.unparse(s.target) + (f"={ast.unparse(s.value)}" if s.value else "") for s in fields)
    made = ast.parse(f"def __init__(self, {shown}): ...").body[0]
    assert isinstance(made, ast.FunctionDef), "it was written as one"
    return made


def refuses(found: Found, call: str) -> str | None:
    """Why what was found cannot be called as `call`, "f(a, b, key=c)", is written; None where it can."""
    function: Any = found.node
    if isinstance(function, ast.ClassDef):
        function = constructor(function)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    made = ast.parse(call, mode="eval").body
    assert isinstance(made, ast.Call), call
    args = function.args
    names = [argument.arg for argument in (*args.posonlyargs, *args.args)]
    if names[:1] in (["self"], ["cls"]):
        names.pop(0)
    given = {keyword.arg for keyword in made.keywords}
    if len(made.args) > len(names) and args.vararg is None:
        return f"it takes {len(names)} positional arguments, not {len(made.args)}"
    known = {*names[len(made.args) :], *(argument.arg for argument in args.kwonlyargs)}
    unknown = sorted(str(name) for name in given - known)
    if unknown and args.kwarg is None:
        return f"it has no parameter {', '.join(unknown)}"
    needed = names[len(made.args) : len(names) - len(args.defaults)]
    needed += [a.arg for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
    missing = [name for name in needed if name not in given]
    return f"it needs {', '.join(missing)}" if missing else None


def _parameters(arguments: ast.arguments) -> str:
    bare = ast.parse(f"def f({ast.unparse(arguments)}): ...").body[0]
    assert isinstance(bare, ast.FunctionDef), "it was written as one"
    for node in ast.walk(bare):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(bare.args)


def _parsed(text: str) -> ast.Module | None:
    """None for a file that is damaged, or written for a newer Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """What stands in a module or a class, also below `if`, `try` and `with`."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _statements(child)
        elif isinstance(child, ast.stmt):
            yield child


def _defines(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return statement.name == name
    if isinstance(statement, ast.ImportFrom):
        return any((alias.asname or alias.name) == name for alias in statement.names)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _is_overload(statement: ast.stmt) -> bool:
    return any("overload" in ast.unparse(decorator) for decorator in getattr(statement, "decorator_list", ()))


def _absolute(statement: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module that a `from … import` names."""
    if not statement.level:
        return statement.module or ""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    kept = parts[: len(parts) - statement.level + 1]
    return ".".join([*kept, statement.module] if statement.module else kept)
