"""No reported fault is ours: each program does what eager does, or raises, or is named in the ledger."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import bridge
from tests.cases.harness import differences, differing, load, names, played, record

RAISES = {
    "gradient_penalty_second_order": (RuntimeError, "does not currently support double backward"),
}
"""Programs that AOTAutograd cannot run, with the error that says so. Second derivatives need another capture."""

NOT_AVAILABLE = {"gradient_between_two_outputs": "gradient between results"}
"""Programs whose answer is lost, and the kind of event that says so. AOTAutograd makes one autograd function of a
graph, so that `autograd.grad` between two of its results finds no way and gives None."""

EMPTY = {"offset_alias_output_view", "forbidden_leaf_inplace_still_errors"}
"""Programs of which nothing is compiled: AOTAutograd would be wrong, or eager raises."""

TARGETS = ["eager", "tvm"]


class Compiling:
    """Compiles for a target, and keeps what it compiled."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.compilations: list[Any] = []

    def __call__(self, program: Any) -> Any:
        compiled = bridge.compile(program, self.target)
        assert compiled is not program
        self.compilations.append(bridge.inspect(compiled))
        return compiled

    @property
    def runs(self) -> int:
        return sum(graph.runs[0] for compilation in self.compilations for graph in compilation.graphs)

    def kinds(self) -> set[str]:
        return {event.kind for compilation in self.compilations for event in compilation.ledger}


@pytest.mark.parametrize("name", names())
def test_eager_agrees_with_itself(name: str) -> None:
    """The programs are right and deterministic, or the comparison below would show nothing."""
    case = load(name)
    if hasattr(case, "EXPECT_RAISES"):
        with pytest.raises(case.EXPECT_RAISES):
            record(case)
    else:
        assert differences(case, lambda program: program) == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", names())
def test_compiled_as_eager(name: str, target: str) -> None:
    case = load(name)
    wrap = Compiling(target)
    torch._dynamo.reset()
    if name in RAISES:
        error, message = RAISES[name]
        with pytest.raises(error, match=message):
            differences(case, wrap)
    elif hasattr(case, "EXPECT_RAISES"):
        with pytest.raises(case.EXPECT_RAISES):
            record(case, wrap)
    elif name in NOT_AVAILABLE:
        assert differing(played(case), played(case, wrap), "", (0, 0))
        assert NOT_AVAILABLE[name] in wrap.kinds()
    else:
        assert differences(case, wrap) == []
    assert wrap.runs > 0 or name in EMPTY
    assert "compiler failed" not in wrap.kinds()
