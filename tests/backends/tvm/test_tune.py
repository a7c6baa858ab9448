"""A search for schedules finds kernels that compute what ours do, is kept, and costs nothing when it fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
from torch.nn import functional as F
from tvm.s_tir import Schedule
from tvm_ffi.serialization import from_json_graph_str

import bridge
from bridge.backends.tvm import build
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.tune import ask
from bridge.backends.tvm.tune.notes import Progress
from bridge.backends.tvm.tune.search import Subject, meta_schedule, subject_of, wider
from bridge.backends.tvm.work import Hardware, planned
from bridge.errors import BadOption
from bridge.ledger import Measure
from bridge.runtime.worker import shared

TUNER = "tests.backends.tvm.tuner"

Function = Callable[[torch.Tensor], torch.Tensor]

TUNABLE: dict[str, tuple[Function, tuple[int, ...], torch.dtype]] = {
    "softmax": (lambda x: F.softmax(x, -1), (33, 100), torch.float32),
    "softmax of columns": (lambda x: F.softmax(x, 0), (48, 64), torch.float32),
    "layer norm": (lambda x: F.layer_norm(x, (x.shape[-1],)), (64, 96), torch.float32),
    "gelu": (lambda x: F.gelu(x * 2 + 1), (1000,), torch.float32),
    "transposed": (lambda x: (x.t() * 2).contiguous(), (48, 33), torch.float32),
    "strided": (lambda x: x[::2, 1:] + x[1::2, :-1], (32, 65), torch.float32),
    "a long sum": (lambda x: (x * x).sum(1), (3, 8192), torch.float32),
    "a long sum in one part": (lambda x: (x * x).sum(1), (3, 4201), torch.float32),
    "doubles": (lambda x: (x.exp() - x.amax(-1, keepdim=True)).sum(-1), (16, 40), torch.float64),
    "extremes": (lambda x: x.amax(-1) - x.amin(-1), (48, 64), torch.float32),
    "integers": (lambda x: (x * 3 // 2 + x % 5).amax(-1), (16, 40), torch.int64),
    "rounded in between": (lambda x: (x.bfloat16() * 3 + 1).float(), (512,), torch.float32),
    "tanh to bfloat16": (lambda x: x.tanh().bfloat16(), (256,), torch.float32),
}


def subjects(function: Function, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Subject]:
    """The kernels of a function, as the tuner has them."""
    asked: list[dict[str, Any]] = []
    answer = build._answer

    def spy(request: dict[str, Any], *rest: Any) -> dict[str, Any]:
        asked.append(dict(request))
        return answer(request, *rest)

    monkeypatch.setattr(build, "_answer", spy)
    with torch.no_grad():
        bridge.compile(function, options={"cache": False})(x)
    target = tvm.target.Target(asked[0]["target"])
    plan = planned(asked[0], from_json_graph_str(asked[0]["module"]), Hardware(target, frozenset()))
    return [subject_of(item, target, 2) for item in plan.items if isinstance(item, Kernel)]


@pytest.mark.parametrize("name", TUNABLE)
def test_blocks_compute_what_the_kernel_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shape, dtype = TUNABLE[name]
    x = torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(1, 9, shape)
    found = subjects(function, x, monkeypatch)
    assert found
    for subject in found:
        schedule = Schedule(subject.module)
        kernel = subject.built(subject.function(schedule))
        assert subject.bench.agree(subject.ours, kernel)


@pytest.mark.parametrize("name", ["softmax", "layer norm", "gelu", "strided", "doubles"])
def test_wider_lanes_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shape, dtype = TUNABLE[name]
    proposals = [
        (subject, one)
        for subject in subjects(function, torch.randn(shape).to(dtype), monkeypatch)
        for one in wider(subject)
    ]
    assert proposals
    for subject, one in proposals:
        assert subject.bench.agree(subject.ours, one.kernel)


def test_a_wrong_kernel_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(16, 32)
    (one,) = subjects(lambda x: F.softmax(x, -1), x, monkeypatch)
    (other,) = subjects(lambda x: F.softmax(x * 1.001, -1), x, monkeypatch)
    assert not one.bench.agree(one.ours, other.ours)


def test_proposals_keep_rows_of_minus_infinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """MetaSchedule's smallest number is finite; a maximum of nothing but minus infinity is not."""
    x = torch.full((64, 64), -math.inf)
    (subject,) = subjects(lambda x: x.amax(-1), x, monkeypatch)
    ms = meta_schedule()
    space = ms.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")
    context = ms.TuneContext(
        subject.module, target=subject.target, space_generator=space, search_strategy="replay-trace", num_threads=1
    )
    schedules = context.generate_design_space()
    assert len(schedules) > 1  # a reduction in parts among them, which knows maxima by their first value
    for schedule in schedules:
        result = torch.empty(64)
        subject.built(subject.function(schedule))(x, result)
        assert result.eq(-math.inf).all()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[torch.arange(3) % 2] * 2, "where data points"),
        (lambda x: F.pad(x, (1, 1)) + 1, "condition"),
    ],
)
def test_what_would_change_is_not_tuned(function: Function, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [one for one in subjects(function, torch.randn(8, 8), monkeypatch) if reason in one.why]
    assert found
    assert all(one.blocks is None for one in found)


# Searches ------------------------------------------------------------------------------------------------------------


def step(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(F.gelu(x), -1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A cache of its own, and a tuner that uses whatever it finds."""
    monkeypatch.setenv("BRIDGE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ask, "TUNER", TUNER)
    yield tmp_path
    shared(TUNER).close()


def trained(tune: float, function: Function = step) -> tuple[Any, torch.Tensor]:
    """A compiled function, after its gradient was compared with eager's."""
    torch.manual_seed(0)
    x = torch.randn(64, 128, requires_grad=True)
    compiled = bridge.compile(function, tune=tune)
    weight = torch.linspace(-1, 1, 64 * 128).reshape(64, 128)
    result = compiled(x)
    (mine,) = torch.autograd.grad(result, x, weight)
    expected = function(x)
    (theirs,) = torch.autograd.grad(expected, x, weight)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    return compiled, mine


def test_found_once(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    compiled, mine = trained(60)
    found = bridge.inspect(compiled).tuned
    chosen = [one for one in found if one.chosen]
    assert chosen
    assert all(one.trials and one.ratio > 0 for one in chosen)
    assert not compiled.ledger
    compiled.explain()
    assert "What a search for schedules found" in capsys.readouterr().out
    names = {record.name for record in bridge.inspect(compiled).records() if isinstance(record, Measure)}
    assert names == {"kernel by rules", "kernel found"}

    def doubled(x: torch.Tensor) -> torch.Tensor:  # another graph, with the same softmax of gelu
        return step(x) + 0

    again, _ = trained(60, doubled)
    assert {one.seconds for one in bridge.inspect(again).tuned} & {one.seconds for one in chosen}  # taken from there

    torch._dynamo.reset()
    monkeypatch.setattr(ask, "shared", None)  # nobody is asked
    once_more, same = trained(60)
    assert bridge.inspect(once_more).tuned == found
    assert torch.equal(mine, same)


def test_a_crash_leaves_our_kernels(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_FAULT", "search")
    compiled, _ = trained(60)
    events = compiled.ledger.select(kind="search failed")
    assert [event.phase for event in events] == ["forward", "backward"]
    assert all("SIGSEGV" in e.detail and e.dead_end is bridge.DeadEnd.MAINTENANCE for e in events)
    assert all(graph.kernel_calls for graph in bridge.inspect(compiled).graphs)
    assert not any(one.chosen for one in bridge.inspect(compiled).tuned)
    shared(TUNER).close()
    monkeypatch.delenv("BRIDGE_FAULT")
    torch._dynamo.reset()
    again, _ = trained(60)  # what failed was not kept
    assert bridge.inspect(again).tuned
    assert not again.ledger


def test_an_interrupt_keeps_what_was_found(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    read = Progress.read

    def interrupted(self: Progress) -> str:
        text = read(self)
        if text and not seen:
            seen.append(text)
            raise KeyboardInterrupt
        return text

    monkeypatch.setenv("BRIDGE_FAULT", "endless")
    monkeypatch.setattr(Progress, "read", interrupted)
    started = time.monotonic()
    with torch.no_grad():
        compiled = bridge.compile(step, tune=1000)
        x = torch.randn(64, 128)
        torch.testing.assert_close(compiled(x), step(x), rtol=1e-5, atol=1e-6)
    assert time.monotonic() - started < 500
    assert seen
    assert not compiled.ledger


@pytest.mark.parametrize("tune", [-1, math.nan, math.inf, True, None, "10"])
def test_bad_options(tune: Any) -> None:
    with pytest.raises(BadOption, match="tune"):
        bridge.compile(step, tune=tune)
