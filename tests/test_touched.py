"""The list of torch's private names is whole: what the sources use stands in it, and what stands in it is used."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from torch import nn

from bridge.frontends.torch.adapters.base import MARKS
from bridge.touched import ATTRIBUTES, CONFORMANCE, MOST_NAMES, PEERS, TORCH
from experiments.api_instability.uses import FOLDERS, ROOT, imported, private, uses

LISTED = [touched.name for touched in TORCH]
LIST = Path("bridge/touched.py")
OTHERS = {"_bridge", "_replace"}
"""Private by name: the twin's own attribute, and the method of a named tuple."""


@cache
def sources() -> dict[Path, str]:
    """Every file of ours but the list itself, with its text."""
    files = [path.relative_to(ROOT) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in files if path != LIST}


def covered(name: str) -> bool:
    """The name is listed, or holds what is listed, or is held by it."""
    return any(f"{name}.".startswith(f"{one}.") or f"{one}.".startswith(f"{name}.") for one in LISTED)


def test_what_is_used_is_listed() -> None:
    found = {use.name: use.place for use in uses("torch") if private(use.name)}
    assert len(found) > 15
    unlisted = {name: place for name, place in found.items() if not covered(name)}
    assert not unlisted, f"private names of torch that {LIST} does not list"


def test_names_in_texts_are_listed() -> None:
    for path, source in sources().items():
        texts = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)]
        named = [text for text in texts if isinstance(text, str) and re.fullmatch(r"torch(\.\w+)+", text)]
        assert not [name for name in named if private(name) and not covered(name)], path


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed_is_used(name: str) -> None:
    last = name.rpartition(".")[2]
    assert any(re.search(rf"\b{last}\b", source) for source in sources().values()), f"take {name} off {LIST}"


def test_the_list_is_short() -> None:
    assert len(LISTED) == len(set(LISTED))
    assert sum(private(touched.name) for touched in TORCH if not touched.without) <= MOST_NAMES


@pytest.mark.parametrize(("tool", "files"), [(CONFORMANCE, "bridge/conformance/"), (PEERS, "bridge/cli/peers.py")])
def test_what_only_a_tool_needs_is_used_by_it_alone(tool: str, files: str) -> None:
    """Else a training is lost with it, and it counts among the names of trainings."""
    names = {touched.name for touched in TORCH if touched.without == tool}
    found = [use for use in uses("torch") if use.name in names]
    assert {use.name for use in found} == names
    assert not [use for use in found if not use.place.startswith(files)]


def test_private_attributes_are_listed() -> None:
    """Of objects: of what is neither an op nor a class of our own. And the names of a module's own mappings."""
    of_modules = {name for name in vars(nn.Module()) if private(name)}
    own, read, named = set(), set(), {name for name in ATTRIBUTES if re.fullmatch(MARKS, name)}
    for source in sources().values():
        tree = ast.parse(source)
        modules = imported(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own |= {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
                own |= {ast.unparse(member.target) for member in node.body if isinstance(member, ast.AnnAssign)}
            elif isinstance(node, ast.Attribute) and private(node.attr):
                owner = ast.unparse(node.value).split(".")[0]
                if owner in ("self", "cls"):
                    own.add(node.attr)
                elif owner not in modules and owner not in ("aten", "prims"):
                    read.add(node.attr)
            elif isinstance(node, ast.Constant) and str(node.value) in of_modules:
                named.add(str(node.value))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                owner, name = ast.unparse(node.args[0]).split(".")[0], node.args[1]
                if owner not in modules and isinstance(name, ast.Constant) and private(str(name.value)):
                    read.add(str(name.value))
    found = named | (read - own - OTHERS)
    assert found == set(ATTRIBUTES), f"private attributes of torch's objects, against those of {LIST}"
