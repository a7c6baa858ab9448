"""`bridge bench`, as a user runs it, and how its numbers are put together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from bridge.bench.step import TARGETS, Stepped
from bridge.bench.summary import COLUMNS, by_target, geometric_mean, ratio, summary
from bridge.cli import app
from bridge.errors import NotCompilable
from bridge.ledger import Measure
from bridge.ledger.jsonl import read
from bridge.runtime.step import summed

MODEL = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
args = (torch.ones(3, 8),)
"""


@pytest.mark.slow
def test_a_model_is_timed_cold_warm_and_steady(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(MODEL)
    out = tmp_path / "bench.jsonl"
    result = CliRunner().invoke(app, ["bench", str(tmp_path / "small.py"), "--rounds", "3", "--out", str(out)])
    assert result.exit_code == 0, result.output
    measures = read(out).measures
    assert {(m.name, m.target) for m in measures} == {(n, t) for n, *_ in COLUMNS for t in TARGETS}
    assert all(value > 0 for m in measures for value in m.values)
    assert {len(m.values) for m in measures if m.name == "step"} == {3}
    assert "geometric" not in result.output  # of one model


def test_a_target_that_is_not_there_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", str(tmp_path / "nothing.py")])
    assert result.exit_code == 2
    assert "there is no such file" in result.stderr


def test_each_target_steps_a_copy_of_its_own() -> None:
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    stepped = Stepped(model, (x,), {}, summed)
    assert stepped.first.keys() == stepped.steps.keys() == TARGETS.keys()
    assert model.weight.grad is None
    with pytest.raises(NotCompilable, match="needs one"):
        Stepped(torch.sin, (x,), {}, summed)


def test_ratios_are_of_medians_and_tell_their_spread() -> None:
    records = [
        Measure("step", (1.0, 2.0, 3.0, 4.0, 90.0), "s", "bridge", "net"),
        Measure("step", (6.0,), "s", "inductor", "net"),
        Measure("step", (12.0,), "s", "eager", "net"),
        Measure("step", (1.0,), "s", "bridge", "alone"),
    ]
    of = by_target(records, "step")
    assert ratio(of["net"], "inductor") == (0.5, pytest.approx(7.58, abs=0.1))
    assert ratio(of["alone"], "inductor") is None
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)
    assert [column.header for column in summary(records).columns][:2] == ["model", "step\ninductor"]
