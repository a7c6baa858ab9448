"""The README's examples run as they stand there, and do what the text beside them says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from experiments.figures import BEGIN, END, table

README = Path(__file__).parents[1] / "README.md"


def test_examples_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    for example in examples:
        exec(compile(example, str(README), "exec"), names)
    placement = names["compiled"].placement
    assert all(placement[phase]["generated"] > 0 for phase in ("forward", "backward"))
    assert {ways["uncaptured"] for ways in placement.values()} == {0}
    step = names["train"].placement["step"]
    assert (step["fallback"], step["uncaptured"]) == (0, 0)
    assert step["generated"] > 0
    assert names["compiled"].state_dict().keys() == names["model"].state_dict().keys()


def test_what_it_links_to_is_there() -> None:
    linked = re.findall(r"\]\(([\w/.-]+)\)", README.read_text(encoding="utf-8"))
    assert len(linked) >= 3
    assert not [name for name in linked if not (README.parent / name).exists()]


def test_its_numbers_are_those_of_the_kept_results() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.partition(BEGIN + "\n")[2].partition("\n" + END)[0] == table()
