"""The corpus is whole, and its runner tells what is right from what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bridge.cli.processes import RAISED, TIMED_OUT
from bridge.ledger import Event, Measure, Placement
from bridge.ledger.jsonl import read
from experiments.apart import measured_apart
from experiments.corpus import META, MODELS, SKIPPED, Made
from experiments.corpus.registry import register
from experiments.coverage.exact import Draws, grouped_product, in_float64, widened
from experiments.coverage.run import main
from experiments.coverage.step import change_last_bits, differences, drawn_in_the_open, eager_steps, furthest
from experiments.coverage.summary import lines, verdicts
from experiments.measure import largest

SMALL = ["torch_rnn_tanh", "torch_embeddingbag"]


def test_every_model_is_there_or_named_as_missing() -> None:
    assert len(MODELS.keys() | SKIPPED.keys()) == 85
    assert not MODELS.keys() & SKIPPED.keys()
    assert MODELS.keys() == META.keys()
    assert all("is not installed" in reason for reason in SKIPPED.values())


def test_a_model_of_a_missing_package_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (MODELS, META, SKIPPED):
        monkeypatch.setattr("experiments.corpus.registry." + _name_of(table), dict(table))
    from experiments.corpus import registry

    @register("absent", "no_such_package", "cnn")
    def absent() -> Made:
        raise AssertionError("it is not to be made")

    assert registry.SKIPPED["absent"] == "package no_such_package is not installed"
    assert "absent" not in registry.MODELS


def _name_of(table: object) -> str:
    return {id(MODELS): "MODELS", id(META): "META", id(SKIPPED): "SKIPPED"}[id(table)]


def test_a_seed_fixes_weights_and_inputs() -> None:
    (one, (x,), _, _), (same, (y,), _, _), (other, _, _, _) = (MODELS["torch_rnn_tanh"](seed) for seed in (0, 0, 1))
    assert torch.equal(x, y)
    assert one.training
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters()))
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in pairs)


class Noisy(nn.Module):
    """Draws numbers that torch draws otherwise in float64, and asks for float32 by name."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(12) + torch.rand(12, dtype=torch.float32) + torch.zeros(12).bernoulli_(0.5)
        return (self.weight * x * noise).float().exp()


def made() -> Made:
    return Noisy(), (torch.linspace(0.1, 0.7, 12),), {}, lambda output: output.sum()


def test_the_step_in_float64_draws_the_same_numbers() -> None:
    steps = eager_steps(made())
    eager, exact = steps.step, steps.exact
    assert {tensor.dtype for tensor in exact.gradients.values()} == {torch.float64}
    assert exact.outputs["loss"].dtype == torch.float64
    torch.testing.assert_close(eager.gradients["weight"].double(), exact.gradients["weight"], rtol=1e-5, atol=1e-6)
    assert not torch.equal(eager.gradients["weight"].double(), exact.gradients["weight"])
    assert torch.get_default_dtype() == torch.float32


class Dropping(nn.Module):
    """Has dropout inside of what is one kernel of a GPU's."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(16, 16, num_layers=2, dropout=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole, _ = self.recurrent(x)
        return F.scaled_dot_product_attention(whole, x, whole, dropout_p=0.4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_step_in_float64_drops_what_a_gpu_drops() -> None:
    torch.manual_seed(0)
    module, x = Dropping().cuda(), torch.randn(24, 8, 16, device="cuda")
    with drawn_in_the_open(module):
        steps = eager_steps((module, (x,), {}, lambda output: output.square().sum()))
    for name, exactly in steps.exact.gradients.items():
        torch.testing.assert_close(steps.step.gradients[name].double(), exactly, rtol=1e-3, atol=1e-4)


def test_other_draws_than_before_are_noticed() -> None:
    with Draws() as draws:
        torch.randn(3)
    with pytest.raises(ValueError, match="was drawn before"), in_float64(draws.kept):
        torch.randn(4)


def test_inputs_are_widened_as_leaves() -> None:
    x, whole = widened((torch.ones(2, requires_grad=True), torch.arange(2)))
    assert (x.dtype, x.is_leaf, x.requires_grad, whole.dtype) == (torch.float64, True, True, torch.int64)


@pytest.mark.parametrize(("left", "right"), [((6, 4), (3, 4, 5)), ((4, 6), (6, 5)), ((3, 4, 5), (5, 6))])
def test_grouped_products_are_torchs(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y, ends = torch.randn(left), torch.randn(right), torch.tensor([2, 2, 6], dtype=torch.int32)
    found = grouped_product(x.double(), y.double(), ends)
    groups = [slice(0, 2), slice(2, 2), slice(2, 6)]
    for number, group in enumerate(groups):
        if len(left) == 3:
            torch.testing.assert_close(found[:, group], (x[number] @ y[:, group]).double())
        elif len(right) == 3:
            torch.testing.assert_close(found[group], (x[group] @ y[number]).double())
        else:
            torch.testing.assert_close(found[number], (x[:, group] @ y[group]).double())


def test_every_kind_of_difference_is_found() -> None:
    steps = eager_steps(made())
    eager, exact = steps.step, steps.exact
    assert differences(eager, eager, exact) == []
    gradients = {"weight": eager.gradients["weight"] * 1.001}
    ((what, how),) = differences(replace(eager, gradients=gradients), eager, exact)
    assert (what, how.split(":")[0]) == ("gradient", "weight")
    assert differences(replace(eager, gradients={}), eager, exact) == [("gradient", "weight: only on one side")]
    narrow = {name: tensor.half() for name, tensor in eager.outputs.items()}
    assert [what for what, _ in differences(replace(eager, outputs=narrow), eager, exact)] == ["output", "output"]
    buffers = {"count": torch.tensor(1)}
    found, expected = (replace(eager, buffers={"count": torch.tensor(n)}) for n in (2, 1))
    assert differences(found, expected, replace(exact, buffers=buffers)) == [("buffer", "count: other values")]
    drawn = replace(eager, generator=eager.generator + 1)
    assert differences(drawn, eager, exact) == [("generator", "other random numbers were drawn")]


def test_the_last_bits_of_weights_say_how_far_rounding_leads() -> None:
    eager = eager_steps(made())
    worst = furthest([eager.step, *eager.changed], eager.exact)
    own = [largest(step.gradients["weight"].double() - eager.exact.gradients["weight"]) for step in eager.changed]
    found = largest(worst.gradients["weight"].double() - eager.exact.gradients["weight"])
    assert found >= max(own) > 0
    assert found < 1e-5
    weights = nn.Linear(8, 8)
    before = weights.weight.detach().clone()
    change_last_bits(weights, 0)
    moved = (weights.weight - before).abs()
    assert 0 < (moved > 0).sum() < 64
    assert (moved <= before.abs() * 2**-23).all()


@pytest.mark.slow
def test_small_models_run_end_to_end(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    main(SMALL, file=file)
    held = read(file)
    assert {record.model for record in held.records} == set(SMALL)
    found = {line.name: line for line in lines(held.records, SMALL)}
    assert [line.verdict for line in found.values()] == ["right", "right"], held.events
    assert found["torch_rnn_tanh"].whole
    names = {measure.name for measure in held.measures if measure.model == "torch_rnn_tanh"}
    assert names >= {"first step", "gradient error", "kernels called", "uncaptured calls", "wrong results"}
    assert {p.phase for p in held.records if isinstance(p, Placement)} >= {"forward", "backward"}


def test_what_takes_too_long_is_ended() -> None:
    children: set = set()
    (event,) = measured_apart("experiments.coverage.step", "torch_gru", [], 0.2, children)
    assert isinstance(event, Event)
    assert (event.kind, event.model) == (TIMED_OUT, "torch_gru")
    assert not children


def test_what_a_model_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    (event,) = measured_apart("experiments.coverage.step", "no such model", [], 60, set())
    assert isinstance(event, Event)
    assert event.kind == RAISED
    assert "no such model" in event.detail or "invalid choice" in event.detail


def test_verdicts() -> None:
    right, wrong = (Measure("wrong results", (n,), model=name) for n, name in [(0.0, "a"), (2.0, "b")])
    assert verdicts([right, wrong]) == {"a": "right", "b": "wrong"}


def test_a_mask_of_a_gpus_dropout_is_that_of_the_run_before() -> None:
    x = torch.randn(40, 5)
    with Draws() as draws:
        first, mask = torch.native_dropout(x, 0.3, True)
    with in_float64(draws.kept):
        again, same = torch.native_dropout(x.double(), 0.3, True)
    assert torch.equal(mask, same)
    torch.testing.assert_close(again.float(), first)
