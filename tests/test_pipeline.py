"""The order of the fallbacks is followed, and what is wrong with the installation reaches the user."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

import bridge
from bridge import api, pipeline
from bridge.backends.eager import Eager
from bridge.backends.tvm import threads
from bridge.errors import BadOption, WrongVersion
from bridge.ir.backend import Refusal
from bridge.ledger import DeadEnd
from bridge.versions import Problem


def run_twice(function: Any) -> Any:
    """Two graphs of one compilation."""
    compiled = bridge.compile(function, dynamic=False)
    for size in (3, 4):
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
    assert len(bridge.inspect(compiled).graphs) == 2
    return compiled


def test_a_sound_installation_is_no_event() -> None:
    compiled = run_twice(lambda x: x + 1)
    assert not compiled.ledger.select(kind="version")
    assert not compiled.ledger.select(kind="thread pool")


def test_an_untested_version_is_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "findings", lambda: [Problem("triton", "triton 9 is installed")])
    (event,) = run_twice(lambda x: x + 1).ledger.select(dead_end="api_instability", kind="version")
    assert (event.op, event.detail) == ("triton", "triton 9 is installed")


def test_a_version_that_would_crash_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem("apache-tvm-ffi", "too new: pip install an older one", fatal=True)
    monkeypatch.setattr(api, "findings", lambda: [problem])
    with pytest.raises(WrongVersion, match="too new: pip install an older one"):
        bridge.compile(lambda x: x + 1)
    assert bridge.compile(lambda x: x + 1, target="eager")(torch.ones(1)) == 2


def test_tvms_own_threads_are_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "install", lambda: "kernels run on TVM's own thread pool: no OpenMP")
    (event,) = run_twice(lambda x: x + 1).ledger.select(dead_end="maintenance", kind="thread pool")
    assert event.detail.endswith("no OpenMP")


class Refusing:
    """A backend that takes what it is told to, and builds none of it."""

    name = "inductor"

    def accepts(self, node: fx.Node) -> Refusal | None:
        return None if "sinh" in str(node.target) else Refusal(DeadEnd.COVERAGE, "not taken", "no row")

    def build(self, node: fx.Node) -> Any:
        raise RuntimeError("no compiler here")


DENIED = {"denied": ("aten.sinh.default", "aten.exp.default")}


def test_fallbacks_are_asked_in_their_order() -> None:
    x = torch.randn(5)
    compiled = bridge.compile(lambda x: x.sinh() + x.exp(), fallback=["inductor", "eager"], options=DENIED)
    torch.testing.assert_close(compiled(x), x.sinh() + x.exp())
    assert [event.backend for event in compiled.ledger.select(kind="denied")] == ["inductor", "inductor"]
    audit = bridge.audit(compiled, x)
    assert audit.ok
    assert not audit.fallback, "Inductor generates both"


def test_a_fallback_that_fails_gives_the_node_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "FALLBACKS", {"inductor": lambda *_: Refusing(), "eager": lambda *_: Eager()})
    x = torch.randn(5)
    compiled = bridge.compile(lambda x: x.sinh() + x.exp(), fallback=["inductor", "eager"], options=DENIED)
    torch.testing.assert_close(compiled(x), x.sinh() + x.exp())
    (event,) = compiled.ledger.select(kind="build failed")
    assert (event.op, event.backend) == ("aten.sinh.default", "eager")
    assert "no compiler here" in event.detail
    assert bridge.audit(compiled, x).fallback == {"aten.sinh.default": 1, "aten.exp.default": 1}


@pytest.mark.parametrize("order", [["inductor"], ["halide", "eager"], []])
def test_an_order_that_cannot_be_followed_is_an_error(order: list[str]) -> None:
    with pytest.raises(BadOption, match="'inductor', 'eager'"):
        bridge.compile(lambda x: x, fallback=order)
