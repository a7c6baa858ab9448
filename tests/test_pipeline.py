"""What is wrong with the installation reaches the user: as events, or as an error where nothing could run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import bridge
from bridge import api, pipeline
from bridge.backends.tvm import threads
from bridge.errors import WrongVersion
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
