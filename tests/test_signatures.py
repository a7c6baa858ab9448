"""Signatures are read from a folder or a wheel, through imports, without importing anything."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

import pytest

from bridge.signatures import Sources, refuses

FILES = {
    "pkg/__init__.py": "from .inner import moved as known, Class\nfrom . import config\nraise ImportError('not run')\n",
    "pkg/inner/__init__.py": "from pkg.inner._deep import *\nfrom other import foreign\n",
    "pkg/inner/_deep.py": (
        "import typing\n"
        "@typing.overload\ndef moved(a: int) -> int: ...\n"
        "def moved(a: int, b=1, *, key: str, word=None) -> int: ...\n"
        "class Base:\n    limit = 3\n    def below(self, x): ...\n"
        "if True:\n    class Class(Base):\n        def __init__(self, size, name=''): ...\n"
    ),
    "pkg/config.py": "import typing\ndepth: int = 8\nif typing.TYPE_CHECKING:\n    from pkg.typed import *\n",
    "pkg/typed.pyi": "def patch(a=None, **changes) -> None: ...\n",
    "pkg/data.py": (
        "from dataclasses import dataclass\n@dataclass\nclass Answer:\n    code: object\n    reason: str = ''\n"
    ),
}


@pytest.fixture(params=["folder", "wheel"])
def sources(request: pytest.FixtureRequest, tmp_path: Path) -> Sources:
    if request.param == "wheel":
        with zipfile.ZipFile(tmp_path / "pkg-1.whl", "w") as wheel:
            for name, text in FILES.items():
                wheel.writestr(name, text)
        return Sources(tmp_path / "pkg-1.whl")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Sources(tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("pkg.known", "pkg/inner/_deep.py", "(a, b=1, *, key, word=None)"),
        ("pkg.inner.moved", "pkg/inner/_deep.py", "(a, b=1, *, key, word=None)"),
        ("pkg.Class", "pkg/inner/_deep.py", "class(Base) (self, size, name='')"),
        ("pkg.Class.below", "pkg/inner/_deep.py", "(self, x)"),
        ("pkg.Class.limit", "pkg/inner/_deep.py", "= 3"),
        ("pkg.config.depth", "pkg/config.py", "= 8"),
        ("pkg.config.patch", "pkg/typed.pyi", "(a=None, **changes)"),
        ("pkg.data.Answer", "pkg/data.py", "class() (self, code, reason='')"),
        ("pkg.inner", "pkg/inner/__init__.py", "a module"),
        ("pkg.inner.foreign", "pkg/inner/__init__.py", "from other"),
    ],
)
def test_a_name_is_found_where_it_is_defined(sources: Sources, name: str, file: str, text: str) -> None:
    found = sources.find(name)
    assert found is not None
    assert (found.file, found.text) == (file, text)


@pytest.mark.parametrize("name", ["pkg.nothing", "pkg.Class.nothing", "pkg.nothing.at.all", "nobody.knows"])
def test_what_is_not_there_is_not_found(sources: Sources, name: str) -> None:
    assert sources.find(name) is None


@pytest.mark.parametrize(
    ("name", "call", "reason"),
    [
        ("pkg.known", "f(a, key=k)", None),
        ("pkg.known", "f(a, b, key=k, word=w)", None),
        ("pkg.known", "f(a, b)", "it needs key"),
        ("pkg.known", "f(a, b, c, key=k)", "it takes 2 positional arguments, not 3"),
        ("pkg.known", "f(a, key=k, colour=c)", "it has no parameter colour"),
        ("pkg.known", "f(a, a=a, key=k)", "it has no parameter a"),
        ("pkg.Class", "Class(3)", None),
        ("pkg.Class", "Class()", "it needs size"),
        ("pkg.config.patch", "patch(x, y=y)", None),
        ("pkg.data.Answer", "Answer(code)", None),
        ("pkg.data.Answer", "Answer()", "it needs code"),
        ("pkg.config.depth", "depth()", None),
    ],
)
def test_whether_a_call_is_taken(sources: Sources, name: str, call: str, reason: str | None) -> None:
    found = sources.find(name)
    assert found is not None
    assert refuses(found, call) == reason


def test_a_fingerprint_leaves_annotations_out(tmp_path: Path) -> None:
    for number, text in enumerate(("def f(a: int, b: str = '') -> int: ...", "def f(a, b=''): return 1")):
        (tmp_path / f"m{number}.py").write_text(text)
    made = [Sources(tmp_path).find(f"m{number}.f") for number in (0, 1)]
    assert made[0] is not None
    assert made[1] is not None
    assert made[0].digest == made[1].digest
    assert isinstance(made[0].node, ast.FunctionDef)
