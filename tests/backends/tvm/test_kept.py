"""A graph that was compiled before is found again: without TVM, and with the same program, placement and events."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.backends.tvm import build, kept, table
from bridge.ledger import Event
from bridge.runtime.cache import MANIFEST

PROGRAM = """
import json, sys, torch, bridge
torch.manual_seed(0)
from torch import nn
net = nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4), nn.Linear(4, 40), nn.Dropout(0.5))
compiled = bridge.compile(net)
x = torch.arange(9).reshape(3, 3)
loss = compiled(x).cumsum(0).sum()
loss.backward()
graphs = bridge.inspect(compiled).graphs
try:
    compiled(x + 1)
except IndexError as error:
    wrong = str(error)
told = [loss.item(), [p.grad.sum().item() for p in net.parameters()]]
told += [[g.source for g in graphs], compiled.placement, wrong]
print(json.dumps([told, "tvm" in sys.modules]))
"""


def in_a_process(cache: Path) -> tuple[Any, bool]:
    environment = {**os.environ, "BRIDGE_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_second_process_needs_no_compiler(tmp_path: Path) -> None:
    first, compiler = in_a_process(tmp_path)
    assert compiler
    assert "index out of range" in first[-1]
    again, compiler = in_a_process(tmp_path)
    assert not compiler
    assert again == first


class Net(nn.Module):
    def __init__(self, sizes: int = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(sizes, sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.matrix_exp(self.layer(x).tanh()) * 2


class Moved(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:

        return torch.linalg.matrix_exp(self.layer(x).tanh()) * 2


def compiled_anew(net: nn.Module, x: torch.Tensor, **options: Any) -> Any:
    torch._dynamo.reset()
    compiled = bridge.compile(net, **options)
    compiled(x).sum().backward()
    return compiled


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was built since the cache was empty."""
    monkeypatch.setenv("BRIDGE_CACHE_DIR", str(tmp_path))
    made: list[Any] = []
    answer = build._answer
    monkeypatch.setattr(build, "_answer", lambda *args: made.append(args) or answer(*args))
    return made


def test_events_are_told_again_with_the_lines_of_today(built: list[Any]) -> None:
    x = torch.randn(6, 6)
    first, again = compiled_anew(Net(), x), compiled_anew(Moved(), x)
    assert len(built) == 2
    assert first.placement == again.placement
    assert first.placement["forward"]["fallback"] == 1

    def told(event: Event) -> tuple[Any, ...]:
        return event.op, event.detail, event.phase, event.node, event.call

    assert [told(event) for event in first.ledger] == [told(event) for event in again.ledger]
    lines = [next(event.source for event in one.ledger) for one in (first, again)]
    assert lines[0] != lines[1]
    assert all("matrix_exp(self.layer(x).tanh())" in line for line in lines)
    for one, line in zip((first, again), lines, strict=True):
        assert line in bridge.inspect(one).graphs[0].source


@pytest.mark.parametrize(
    "change",
    [
        {"size": 7},
        {"strided": True},
        {"dtype": torch.float64},
        {"options": {"denied": ("aten.tanh.default",)}},
        {"library": False},
    ],
)
def test_what_differs_is_built(built: list[Any], change: dict[str, Any]) -> None:
    compiled_anew(Net(), torch.randn(6, 6))
    known = len(built)
    size, dtype = change.pop("size", 6), change.pop("dtype", torch.float32)
    x = torch.randn(size, size, dtype=dtype)
    net = Net(size).to(dtype)
    compiled = compiled_anew(net, x.t() if change.pop("strided", False) else x, **change)
    assert len(built) > known
    torch.testing.assert_close(compiled(x), net(x))


def test_the_type_of_numbers_is_part_of_what_was_built(built: list[Any]) -> None:
    """Integers are compared with a number in torch's default type, which no value of the graph has."""
    x = torch.tensor([2**24 + 1])

    def is_larger() -> bool:
        torch._dynamo.reset()
        return bridge.compile(lambda x: x > 2.0**24)(x).item()

    assert not is_larger()
    torch.set_default_dtype(torch.float64)
    try:
        assert is_larger()
    finally:
        torch.set_default_dtype(torch.float32)


def test_sizes_that_are_symbols_are_not_told_by_text(built: list[Any]) -> None:
    compiled = compiled_anew(Net(), torch.randn(5, 6, 6), dynamic=True)
    (forward, _) = bridge.inspect(compiled).graphs
    assert kept.key_of(forward.graph, bridge.Options()) is None
    static = compiled_anew(Net(), torch.randn(5, 6, 6), dynamic=False)
    assert kept.key_of(bridge.inspect(static).graphs[0].graph, bridge.Options()) is not None
    assert kept.key_of(bridge.inspect(static).graphs[0].graph, bridge.Options(fallback=("inductor", "eager"))) is None


def test_a_plan_without_its_kernels_is_built_anew(built: list[Any], tmp_path: Path) -> None:
    x = torch.randn(6, 6)
    compiled_anew(Net(), x)
    for library in tmp_path.glob("*/kernels.so"):
        library.unlink()
    torch.testing.assert_close(compiled_anew(net := Net(), x)(x), net(x))
    assert len(built) == 4


def test_a_plan_that_says_nothing_is_kept_no_longer(built: list[Any], tmp_path: Path) -> None:
    x = torch.randn(6, 6)
    compiled_anew(Net(), x)
    for folder in tmp_path.iterdir():
        if (folder / kept.PLAN).exists():
            (folder / kept.PLAN).write_text("{}")
            digest = hashlib.sha256(b"{}").hexdigest()
            manifest = json.loads((folder / MANIFEST).read_text())
            (folder / MANIFEST).write_text(json.dumps({**manifest, kept.PLAN: digest}))
    for builds in (4, 4):  # anew, and then found again
        torch.testing.assert_close(compiled_anew(net := Net(), x)(x), net(x))
        assert len(built) == builds


@pytest.mark.parametrize("module", ["mypackage.rows", "ops.mine"])
def test_beside_rows_of_others_nothing_is_kept(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = compiled_anew(Net(), torch.randn(6, 6))
    graph = bridge.inspect(net).graphs[0].graph
    assert kept.key_of(graph, bridge.Options()) is not None
    monkeypatch.setitem(table.awaited, "mine.op.default", (abs, {}, f"{module}.op"))
    assert kept.key_of(graph, bridge.Options()) is None
