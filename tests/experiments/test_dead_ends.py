"""docs/dead-ends.md tells of all five, of every kind of event, and in the numbers of the kept results."""

from __future__ import annotations

import ast
import re

from bridge.ledger import DeadEnd
from experiments.dead_ends import BEGIN, END, PAGE, ROOT, table
from experiments.page import held_between

TEXT = PAGE.read_text(encoding="utf-8")


def test_numbers_are_those_of_the_kept_results() -> None:
    assert held_between(PAGE, BEGIN, END) == table(), "python -m experiments.dead_ends"


def test_all_five_are_told() -> None:
    for dead_end in DeadEnd:
        _, _, section = TEXT.partition(f"\n## `{dead_end.value}`")
        section = section.partition("\n## ")[0]
        for heading in ("**Believed.**", "**Here.**", "**Remains.**"):
            assert heading in section, f"{dead_end.value}: {heading}"


def test_every_kind_of_event_is_explained() -> None:
    """Kinds are written in the sources as `kind="…"`, or behind a dead end in a refusal."""
    kinds = set()
    for folder in ("bridge", "frontends", "backends"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg == "kind" and isinstance(node.value, ast.Constant):
                    kinds.add(node.value.value)
    told = set(re.findall(r"^\| `([\w -]+)` \|", TEXT, re.MULTILINE))
    assert len(kinds) > 4
    assert not {kind for kind in kinds if kind} - told


def test_what_it_links_to_is_there() -> None:
    linked = re.findall(r"\]\(([\w/.-]+)\)", TEXT)
    assert len(linked) > 5
    assert not [name for name in linked if not (PAGE.parent / name).exists()]
