"""Which names of another package the bridge's own sources use, read from them with nothing imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("bridge", "frontends", "backends")


@dataclass(frozen=True)
class Use:
    """A dotted name, and a file and line that uses it.

    call: the shape of the call if it is called there, "f(_, _, key=_)"; "" where arguments are spread from a list.
    """

    name: str
    place: str
    call: str = ""


def uses(package: str, doors: Mapping[str, str] | None = None, root: Path = ROOT) -> Iterator[Use]:
    """Every name of a package that is imported, or reached by attributes from what is.

    doors: names of our own that stand for names of the package, as `bridge.backends.tvm.compat.R` does.
    """
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):  # which follows no link, so nothing is read twice
            if not path.parent.is_symlink():
                yield from _of_file(path, package, doors or {}, root)


def private(name: str) -> bool:
    """A part of the name begins with an underscore. Ops have names of their own, and two underscores are Python's."""
    return not name.startswith("torch.ops.") and any(
        part.startswith("_") and not part.startswith("__") for part in name.split(".")
    )


def _of_file(path: Path, package: str, doors: Mapping[str, str], root: Path) -> Iterator[Use]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = imported(tree)
    calls = {id(node.func): _shape(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute | ast.Name) and id(node) not in inside:
            names = [_dotted(node, known)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
            names = [_by_text(node, known)]
        else:
            continue
        for name in names:
            door = next((door for door in doors if name == door or name.startswith(f"{door}.")), None)
            name = name if door is None else doors[door] + name.removeprefix(door)
            if name.split(".")[0] == package:
                yield Use(name, f"{path.relative_to(root)}:{node.lineno}", calls.get(id(node), ""))


def _shape(call: ast.Call) -> str:
    spread = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
    given = ["_"] * len(call.args) + [f"{keyword.arg}=_" for keyword in call.keywords]
    return "" if spread else f"f({', '.join(given)})"


def imported(tree: ast.Module) -> dict[str, str]:
    """What each imported name of a file stands for."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {a.asname: a.name for a in node.names if a.asname}
            known |= {a.name.split(".")[0]: a.name.split(".")[0] for a in node.names if not a.asname}
        elif isinstance(node, ast.ImportFrom):
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return known


def _dotted(node: ast.expr, known: Mapping[str, str]) -> str:
    """The full name of a chain of attributes; "" where it does not begin at an import."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value, known)):
        return f"{owner}.{node.attr}"
    return ""


def _by_text(call: ast.Call, known: Mapping[str, str]) -> str:
    """`getattr(owner, "name", …)` as owner.name."""
    owner, name = _dotted(call.args[0], known), call.args[1]
    return f"{owner}.{name.value}" if owner and isinstance(name, ast.Constant) else ""
