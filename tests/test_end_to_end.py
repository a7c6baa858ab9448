"""Real models train through TVM as they do in eager, and nothing of them runs elsewhere unsaid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.api import Audit
from experiments.measure import gradients, largest, reference_gradients, train, wrong_gradients
from experiments.models import MODELS, WithLoss

STEPS = 20
SEEDS = {"resnet18": 1}
RATES = {"resnet18": 1e-4}
"""resnet18's seed and rate were searched for: of the seeds 1 to 6 at the rates 1e-4, 3e-5 and 1e-3, four of 18 pairs
keep eager in float32 within 1e-4 of eager in float64, and this is one of them. At the seed 0 of the other models eager
itself is 1e-3 to 6e-2 away from float64, and the bridge is not within 1e-4 of eager at any of four rates tried.
The search looked at eager only, never at the bridge's result."""
NUDGES = {"resnet18": 4}
"""How often eager is trained again from weights that differ in their last bits, where a model amplifies that: the
bridge may be twice as far from eager as these are, where that is more than 1e-4."""

NAMES = ["mlp", "gru", "digits", "gpt2", "llama", "bert", "resnet18"]


@dataclass(frozen=True)
class Trained:
    """What 20 steps leave behind."""

    module: nn.Module
    losses: list[float]
    buffers: dict[str, torch.Tensor]
    generator: torch.Tensor


@dataclass(frozen=True)
class Pair:
    """A model in eager and through the bridge, from the same weights, before and after 20 steps.

    nudged: eager after as many steps from weights that differ in their last bits.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    first: dict[str, tuple[torch.Tensor, dict[str, torch.Tensor]]]
    exact: dict[str, torch.Tensor]
    eager: Trained
    compiled: Trained
    audit: Audit
    nudged: list[Trained]


def whole(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    module, args, kwargs, loss = MODELS[name](SEEDS.get(name, 0))
    return WithLoss(module, loss), args, kwargs


def trained(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Trained:
    losses = train(
        module, args, kwargs, STEPS, lambda parameters: torch.optim.SGD(parameters, lr=RATES.get(name, 1e-2))
    )
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    return Trained(module, losses, buffers, torch.get_rng_state())


def trained_pair(name: str) -> Pair:
    module, args, kwargs = whole(name)
    compiled = bridge.compile(whole(name)[0])
    with torch.compiler.set_stance("force_eager"):
        exact = reference_gradients(module, args, kwargs)
        first = {"eager": gradients(module, args, kwargs)}
        eager = trained(module, args, kwargs, name)
        nudged = [trained(nudge(whole(name)[0], seed), args, kwargs, name) for seed in range(NUDGES.get(name, 0))]
    first["compiled"] = gradients(compiled, args, kwargs)
    after = trained(compiled, args, kwargs, name)
    audit = bridge.audit(lambda: compiled(*args, **kwargs).backward())
    return Pair(args, kwargs, first, exact, eager, after, audit, nudged)


def nudge(module: nn.Module, seed: int) -> nn.Module:
    """The module with every weight rounded anew, up or down by chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            up = torch.rand(parameter.shape, generator=generator) < 0.5
            parameter.copy_(torch.nextafter(parameter, torch.where(up, torch.inf, -torch.inf)))
    return module


@pytest.mark.parametrize("name", NAMES)
def test_trains_as_in_eager(name: str) -> None:
    """One test a model, since the model is compiled for all that is asked of it."""
    pair = trained_pair(name)
    eager_is_eager_and_the_other_is_compiled(pair)
    losses_are_eagers(pair)
    first_gradients_are_right(pair)
    running_statistics_are_eagers(pair)
    assert torch.equal(pair.compiled.generator, pair.eager.generator), "other random numbers were drawn"
    nothing_ran_elsewhere(pair)


def eager_is_eager_and_the_other_is_compiled(pair: Pair) -> None:
    graphs = bridge.inspect(pair.compiled.module).graphs
    assert sum(graph.kernel_calls * graph.runs[0] for graph in graphs) > 0
    assert {graph.graph.phase.value for graph in graphs} >= {"forward", "backward"}
    before = [graph.runs[0] for graph in graphs]
    gradients(pair.eager.module, pair.args, pair.kwargs)
    assert [graph.runs[0] for graph in graphs] == before
    assert not hasattr(pair.eager.module, "placement")


def losses_are_eagers(pair: Pair) -> None:
    assert pair.eager.losses[-1] < 0.99 * pair.eager.losses[0]
    for step, (found, eager) in enumerate(zip(pair.compiled.losses, pair.eager.losses, strict=True)):
        swing = max((abs(n.losses[s] - pair.eager.losses[s]) for n in pair.nudged for s in range(step + 1)), default=0)
        assert abs(found - eager) <= max(1e-4 * eager, 2 * swing), f"step {step}: {found}, not {eager}"


def first_gradients_are_right(pair: Pair) -> None:
    (_, found), (_, eager) = pair.first["compiled"], pair.first["eager"]
    assert pair.exact
    wrong = wrong_gradients(found, eager, pair.exact)
    assert not wrong, "\n".join(map(str, wrong))


def running_statistics_are_eagers(pair: Pair) -> None:
    assert pair.compiled.buffers.keys() == pair.eager.buffers.keys()
    for name, buffer in pair.eager.buffers.items():
        swing = max((largest(n.buffers[name] - buffer) for n in pair.nudged), default=0)
        torch.testing.assert_close(pair.compiled.buffers[name], buffer, rtol=1e-3, atol=max(1e-5, 2 * swing), msg=name)


def nothing_ran_elsewhere(pair: Pair) -> None:
    assert pair.audit.kernels > 0
    assert not pair.audit.fallback, str(pair.audit)
    assert pair.audit.ok, str(pair.audit)
    placement = bridge.inspect(pair.compiled.module).placement
    assert all(ways["generated"] > 0 for ways in placement.values())
    assert {way: sum(ways[way] for ways in placement.values()) for way in ("fallback", "uncaptured")} == {
        "fallback": 0,
        "uncaptured": 0,
    }


def test_resnet_trains_as_in_eager_where_rounding_is_small() -> None:
    """At the seed at which eager's own float32 strays from float64: in float64, where it cannot."""
    losses = []
    for compile in (lambda module: module, bridge.compile):
        module, (images,), _, loss = MODELS["resnet18"]()
        model = compile(WithLoss(module, loss).double())
        losses.append(train(model, (images.double(),), {}, STEPS, lambda p: torch.optim.SGD(p, lr=1e-2)))
    assert all(ways["fallback"] == 0 < ways["generated"] for ways in model.placement.values())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("drop", [F.dropout, F.alpha_dropout])
def test_dropout_masks_are_eagers(drop: Callable[..., torch.Tensor]) -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return drop(x.tanh(), 0.3, True) * 2

    x = torch.ones(50, 40)
    torch.manual_seed(3)
    expected = dropped(x)
    compiled = bridge.compile(dropped)
    torch.manual_seed(3)
    found = compiled(x)
    assert 0 < (expected == expected[0, 0]).float().mean() < 1
    torch.testing.assert_close(found, expected)
