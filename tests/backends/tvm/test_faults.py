"""A compiler that crashes or hangs costs an event and a little time, not the process and not the result."""

from __future__ import annotations

import pytest
import torch

import bridge
from bridge.backends.tvm import build
from bridge.runtime.worker import shared


@pytest.fixture
def faulty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BRIDGE_FAULT", request.param)
    monkeypatch.setattr(build, "WORKER", "tests.backends.tvm.faulty")
    yield request.param
    shared("tests.backends.tvm.faulty").close()


@pytest.mark.parametrize(
    ("faulty", "kind", "timeout"),
    [("pass", "compiler died", 300.0), ("codegen", "compiler died", 300.0), ("hang", "compiler hung", 25.0)],
    indirect=["faulty"],
)
def test_a_fault_costs_an_event(faulty: str, kind: str, timeout: float) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x.tanh() * 2).sum(0)

    x = torch.randn(8, 16)
    with torch.no_grad():
        compiled = bridge.compile(step, options={"timeout": timeout})
        torch.testing.assert_close(compiled(x), step(x))
    (graph,) = bridge.inspect(compiled).graphs
    assert graph.placement["tanh"] == "fallback"
    assert [node for node, way in graph.placement.items() if way == "fallback"] == ["tanh"]
    assert graph.kernel_calls > 0
    assert graph.runs[0] == 1
    (event,) = compiled.ledger.select(kind=kind)
    assert (event.dead_end, event.op) == (bridge.DeadEnd.MAINTENANCE, "aten.tanh.default")
    assert event.seconds > 0
    if kind == "compiler died":
        assert "SIGSEGV" in event.detail


def test_the_next_build_is_as_if_nothing_had_been(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        compiled = bridge.compile(lambda x: x.tanh() + 1)
        x = torch.randn(5)
        torch.testing.assert_close(compiled(x), x.tanh() + 1)
    assert not list(compiled.ledger)
