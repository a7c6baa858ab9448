"""The demonstration trains, compares, and writes what it saw."""

from __future__ import annotations

import functools
import io
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import bridge
from bridge.demo import run
from bridge.demo.digits import digits_task
from bridge.demo.task import Task
from bridge.demo.text import CONTEXT, manual, text_task
from bridge.demo.timing import WARM_UP, interleaved
from bridge.demo.training import fresh_model, train
from bridge.ledger.jsonl import read


def shortened(task: Task, steps: int) -> Task:
    return replace(task, steps=steps, batches=lambda: itertools.islice(task.batches(), steps))


def test_it_writes_ledger_page_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "TASKS", {"digits": lambda: shortened(digits_task(), 6)})
    monkeypatch.setattr(run, "ROUNDS", 3)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    screen = io.StringIO()
    report = run.run_demo(tmp_path, Console(file=screen), "eager", ["digits"])
    (model,) = report.models
    assert [len(curve) for curve in model.training.losses.values()] == [6, 6]
    assert model.training.largest_difference(run.BRIDGE) == (pytest.approx(0, abs=1e-5), pytest.approx(3, abs=3))
    assert {timing.target for timing in model.training.timings} == {run.EAGER, run.BRIDGE, run.INDUCTOR}
    assert all(timing.step and timing.first_call and timing.readings == 3 for timing in model.training.timings)
    assert set(model.coverage.phases) == {"forward", "backward", "inference"}
    assert model.training.numbers["uncaptured calls in a step"][run.BRIDGE] == (0, "")
    assert set(report.about) >= {"command", "machine", "time", "versions", "duration", "digits"}
    assert read(tmp_path / "ledger.jsonl").about == report.about
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "losses.png").stat().st_size > 5000
    assert "digits: train with bridge" in screen.getvalue()


def test_digits_are_learnt_through_the_bridge() -> None:
    task = digits_task()
    model = bridge.compile(fresh_model(task))
    training = train(task, model, lambda: None)
    assert len(training.losses) == task.steps
    assert task.score is not None
    assert task.score(model) > 95
    assert model.training
    assert all(ways["fallback"] == 0 for ways in model.placement.values())


def test_the_text_is_the_manual() -> None:
    text = manual()
    assert len(text) > 200_000
    alphabet = sorted(set(text))
    (batch,) = next(text_task().batches())
    assert batch.shape[1] == CONTEXT
    for row in batch.tolist():
        assert "".join(alphabet[number] for number in row) in text


@pytest.mark.parametrize("make", [digits_task, text_task])
def test_a_task_is_the_same_each_time(make: object) -> None:
    task = make()  # type: ignore[operator]
    assert sum(1 for _ in task.batches()) == task.steps
    for one, other in zip(next(task.batches()), next(task.batches())):
        assert torch.equal(one, other)
    first, second = fresh_model(task).state_dict(), fresh_model(task).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_calls_take_turns() -> None:
    order: list[str] = []
    times = interleaved({name: functools.partial(order.append, name) for name in "abc"}, 4)
    assert [len(readings) for readings in times.values()] == [4, 4, 4]
    assert len(order) == 3 * (4 + WARM_UP)
    rounds = ["".join(order[start : start + 3]) for start in range(0, len(order), 3)]
    assert rounds[:4] == ["abc", "bca", "cab", "abc"]
