"""Optimizers of torch and of a user in a compiled step, against eager: twenty steps, and states there and back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.errors import BadOption

from .test_compile_step import Lion, Pair, batch, network

optim = torch.optim

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "radam": lambda p: optim.RAdam(p, lr=1e-2, weight_decay=0.01),
    "radam, decay apart": lambda p: optim.RAdam(p, lr=1e-2, weight_decay=0.01, decoupled_weight_decay=True),
    "asgd": lambda p: optim.ASGD(p, lr=1e-2, t0=5, weight_decay=0.01),
    "rprop": lambda p: optim.Rprop(p, lr=1e-2),
    "adamax": lambda p: optim.Adamax(p, lr=1e-2, weight_decay=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=1e-2, weight_decay=0.01, maximize=True),
    "adadelta": lambda p: optim.Adadelta(p, lr=1.0, weight_decay=0.01),
    "lion": Lion,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_are_eagers_and_the_state_is_plain_torchs(name: str) -> None:
    pair = Pair(network(), OPTIMIZERS[name])
    for seed in range(10):
        pair.take(seed)
    assert pair.phases == ["step"]
    assert pair.runs == [9]  # the first step makes the optimizer's state
    assert not pair.kinds
    for optimizer in (pair.optimizer, pair.eager_optimizer):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for seed in range(10, 20):
        pair.take(seed)
    assert pair.runs == [19]
    eager = OPTIMIZERS[name](pair.model.parameters())
    eager.load_state_dict(pair.optimizer.state_dict())
    pair.optimizer = eager
    pair.eager_optimizer.zero_grad()
    inputs, target = batch(20)
    for model, optimizer in ((pair.model, eager), (pair.eager, pair.eager_optimizer)):
        torch.manual_seed(20)
        F.cross_entropy(model(inputs), target).backward()
        optimizer.step()
    pair.compare()


def test_rectified_adam_takes_both_of_its_ways() -> None:
    """Its first steps are without the variance; which they are is no branch of the program."""
    pair = Pair(network(), lambda p: optim.RAdam(p, lr=1e-2, betas=(0.9, 0.8)))
    for seed in range(12):
        pair.take(seed)
    assert pair.runs == [11]


def quadratic() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def test_an_optimizer_that_calls_the_loss_itself() -> None:
    model: Any = quadratic()
    eager = copy.deepcopy(model)
    optimizer, other = (optim.LBFGS(m.parameters(), lr=0.1, max_iter=4) for m in (model, eager))
    step = bridge.compile_step(model, optimizer, F.cross_entropy)
    inputs, target = batch(0, 40)

    def closure() -> torch.Tensor:
        other.zero_grad()
        result = F.cross_entropy(eager(inputs), target)
        result.backward()
        return result

    for _ in range(5):
        torch.testing.assert_close(step(inputs, target), other.step(closure).detach())
        torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=1e-4, atol=1e-5)
    events = [event for event in step.ledger if event.kind == "step outside"]
    assert len(events) == 1
    assert "as often as it likes" in events[0].detail
    assert all(graph.runs[0] > 5 for graph in bridge.inspect(step).graphs)


@pytest.mark.parametrize("clip", [None, 0.1], ids=["plain", "clipped"])
def test_a_scaler_scales_and_leaves_out_what_overflows(clip: float | None) -> None:
    model: Any = quadratic()
    eager = copy.deepcopy(model)
    optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, eager)]
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=3) for _ in range(2)]
    step = bridge.compile_step(model, optimizers[0], F.cross_entropy, clip_norm=clip, scaler=scalers[0])
    for seed in range(8):
        inputs, target = batch(seed)
        with torch.autocast("cpu", torch.bfloat16):
            loss = step(inputs * 64, target)
            optimizers[1].zero_grad()
            expected = F.cross_entropy(eager(inputs * 64), target)
        scalers[1].scale(expected).backward()
        if clip is not None:
            scalers[1].unscale_(optimizers[1])
            nn.utils.clip_grad_norm_(eager.parameters(), clip)
        scalers[1].step(optimizers[1])
        scalers[1].update()
        torch.testing.assert_close(loss, expected.detach(), rtol=2e-2, atol=1e-2)
        torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=2e-2, atol=1e-2)
        assert scalers[0].get_scale() == scalers[1].get_scale()
    assert scalers[0].get_scale() < 2.0**126
    assert [event.kind for event in step.ledger if event.kind == "step outside"] == ["step outside"]


def test_a_scaler_that_is_switched_off_changes_nothing() -> None:
    model: Any = quadratic()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    step = bridge.compile_step(model, optim.SGD(model.parameters(), lr=0.1), F.cross_entropy, scaler=scaler)
    step(*batch(0))
    assert [graph.graph.phase.value for graph in bridge.inspect(step).graphs] == ["step"]


def test_no_scaler_for_an_optimizer_that_calls_the_loss_itself() -> None:
    model = quadratic()
    with pytest.raises(BadOption, match="scaler"):
        bridge.compile_step(model, optim.LBFGS(model.parameters()), scaler=torch.amp.GradScaler("cpu"))
