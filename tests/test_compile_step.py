"""A compiled training step against the same step in eager: parameters, states, gradients and losses, step by step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.ledger import DeadEnd

Make = Callable[[Any], torch.optim.Optimizer]


class Lion(torch.optim.Optimizer):
    """A user's optimizer: it writes through `.data`, counts in Python and replaces its state by new tensors."""

    def __init__(self, params: Any, lr: float = 1e-2, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if not state:
                    state["mean"], state["count"] = torch.zeros_like(p), 0
                state["count"] += 1
                one, two = group["betas"]
                direction = state["mean"].clone().mul_(one).add(p.grad, alpha=1 - one).sign_()
                p.add_(direction, alpha=-group["lr"] / (1 + 0.1 * state["count"]))
                state["mean"] = state["mean"] * two + p.grad * (1 - two)


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "adam, its rate a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-2)),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5, eps=1e-2),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1),
    "lion": Lion,
}


CANCELS = ("rmsprop",)
"""A centred square is a difference: in float32 it is other roundings by the machine, so it is held to in float64."""


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))


def batch(seed: int, size: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 6, generator=generator), torch.randint(0, 3, (size,), generator=generator)


class Pair:
    """A model trained twice: by a compiled step, and as a user writes it."""

    def __init__(self, model: nn.Module, make: Make, loss_fn: Any = F.cross_entropy, **options: Any) -> None:
        self.model: Any = model
        self.eager: Any = copy.deepcopy(model)
        self.optimizer, self.eager_optimizer = make(model.parameters()), make(self.eager.parameters())
        self.loss_fn = loss_fn
        self.step = bridge.compile_step(self.model, self.optimizer, loss_fn, **options)

    def take(self, seed: int, *args: Any, clip: Callable[[Any], object] = lambda p: None) -> None:
        """One step of both, compared."""
        inputs, *targets = args or batch(seed)
        torch.manual_seed(seed)
        loss = self.step(inputs, *targets)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        self.eager_optimizer.zero_grad()
        expected = self.loss_of(inputs, *targets)
        expected.backward()
        clip(self.eager.parameters())
        self.eager_optimizer.step()
        assert torch.equal(state, torch.get_rng_state())
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
        assert not loss.requires_grad
        self.compare()

    def loss_of(self, inputs: Any, *targets: Any) -> torch.Tensor:
        if isinstance(inputs, dict):
            output = self.eager(**inputs)
        else:
            output = self.eager(*inputs) if isinstance(inputs, tuple) else self.eager(inputs)
        return self.loss_fn(output, *targets) if self.loss_fn else output

    def compare(self) -> None:
        close(self.model.state_dict(), self.eager.state_dict())
        close(self.optimizer.state_dict()["state"], self.eager_optimizer.state_dict()["state"])

    @property
    def phases(self) -> list[str]:
        return [graph.graph.phase.value for graph in bridge.inspect(self.step).graphs]

    @property
    def runs(self) -> list[int]:
        """How often each program ran."""
        return [graph.runs[0] for graph in bridge.inspect(self.step).graphs]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.step.ledger]


def close(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for key, value in found.items():
        if isinstance(value, dict):
            close(value, expected[key])
        else:
            torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-6)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_with_a_schedule_is_one_program(name: str) -> None:
    dtype = torch.float64 if name in CANCELS else torch.float32
    pair = Pair(network().to(dtype), OPTIMIZERS[name])
    schedules = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (pair.optimizer, pair.eager_optimizer)]
    held = {id(t): t.data_ptr() for t in pair.model.parameters()}
    for seed in range(6):
        inputs, targets = batch(seed)
        pair.take(seed, inputs.to(dtype), targets)
        for schedule in schedules:
            schedule.step()
    assert pair.phases == ["step"]
    assert pair.runs[0] >= 5
    assert held == {id(t): t.data_ptr() for t in pair.model.parameters()}
    assert not pair.kinds


def test_nothing_is_copied_back_and_everything_that_runs_is_declared() -> None:
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    pair = Pair(model, adamw)
    pair.take(0)
    version = model[0].weight._version
    found = bridge.audit(pair.step, *batch(1))
    assert found.ok, str(found)
    assert found.kernels > 0
    assert "aten.copy_.default" not in found.library
    assert model[0].weight._version > version
    assert pair.step.ledger.select(dead_end=DeadEnd.INPLACE_OPTIMIZER) == ()
    assert set(pair.step.placement) == {"step"}


def test_batch_norm_keeps_its_statistics() -> None:
    pair = Pair(
        nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)), momentum
    )
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        pair.take(seed, torch.randn(2, 1, 8, 8, generator=generator), torch.tensor([0, 2]))
    assert pair.model[1].num_batches_tracked == 3  # type: ignore[index]
    assert pair.phases == ["step"]


def test_groups_keep_their_own_numbers() -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = parameters
        return torch.optim.AdamW([{"params": [first], "lr": 0.1, "weight_decay": 0.3}, {"params": rest}], lr=1e-2)

    pair = Pair(network(), make)
    for seed in range(4):
        pair.take(seed)
        for optimizer in (pair.optimizer, pair.eager_optimizer):
            optimizer.param_groups[1]["lr"] *= 0.5
    assert len(pair.phases) == 1


def test_a_number_that_changes_becomes_an_input() -> None:
    pair = Pair(network(), momentum)
    both = (pair.optimizer, pair.eager_optimizer)
    schedules = [torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=8) for o in both]
    for seed in range(6):
        pair.take(seed)
        for schedule in schedules:
            schedule.step()
    assert len(pair.phases) == 2


def test_state_goes_to_plain_torch_and_back() -> None:
    pair = Pair(network(), adamw)
    for seed in range(2):
        pair.take(seed)
    kept = copy.deepcopy(pair.optimizer.state_dict())
    fresh = adamw(copy.deepcopy(pair.eager).parameters())
    fresh.load_state_dict(kept)
    close(fresh.state_dict()["state"], pair.eager_optimizer.state_dict()["state"])
    pair.take(2)
    pair.optimizer.load_state_dict(copy.deepcopy(kept))
    pair.eager_optimizer.load_state_dict(copy.deepcopy(kept))
    pair.take(3)
    pair.take(4)
    assert len(pair.phases) == 1


def test_eager_steps_may_stand_between() -> None:
    pair = Pair(network(), adamw)
    for seed in range(5):
        pair.take(seed)
        for model, optimizer in ((pair.model, pair.optimizer), (pair.eager, pair.eager_optimizer)):
            torch.manual_seed(seed)
            inputs, target = batch(seed + 10)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), target).backward()
            optimizer.step()
        pair.compare()
    assert len(pair.phases) == 1


@pytest.mark.parametrize("how", ["norm", "value"])
def test_gradients_are_clipped(how: str) -> None:
    if how == "norm":
        pair, clip = Pair(network(), momentum, clip_norm=0.1), lambda p: nn.utils.clip_grad_norm_(p, 0.1)
    else:
        pair, clip = Pair(network(), momentum, clip_value=0.01), lambda p: nn.utils.clip_grad_value_(p, 0.01)
    for seed in range(3):
        pair.take(seed, clip=clip)
    assert pair.phases == ["step"]


def test_gradients_are_accumulated() -> None:
    pair = Pair(network(), adamw)
    for seed in range(3):
        pair.eager_optimizer.zero_grad()
        for part in range(3):
            torch.manual_seed(part)
            expected = pair.loss_of(*batch(10 * seed + part))
            expected.backward()
            torch.manual_seed(part)
            call = pair.step if part == 2 else pair.step.accumulate
            torch.testing.assert_close(call(*batch(10 * seed + part)), expected.detach())
        pair.eager_optimizer.step()
        pair.compare()
    assert all(p.grad is None for p in pair.model.parameters())
    assert not pair.kinds


def test_gradients_are_kept_if_asked_for() -> None:
    pair = Pair(network(), adamw, keep_grads=True)
    for seed in range(3):
        pair.take(seed)
        for mine, eager in zip(pair.model.parameters(), pair.eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, eager.grad)
    before = [p.grad.clone() for p in pair.model.parameters() if p.grad is not None]
    held = [p.grad for p in pair.model.parameters()]
    pair.take(3)
    assert all(torch.equal(a, b) for a, b in zip(before, held, strict=True) if b is not None)


@pytest.mark.parametrize("how", ["fails", "eager"])
def test_what_is_not_compiled_is_written_too(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("no compiler today")

    if how == "fails":
        monkeypatch.setattr("bridge.pipeline._planned", fail)
    mine, own = nn.Linear(3, 2), nn.Linear(3, 2)
    own.load_state_dict(mine.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (mine, own)]
    step = bridge.compile_step(
        mine, optimizers[0], lambda y: y.square().sum(), target="eager" if how == "eager" else "tvm"
    )
    for x in torch.randn(3, 4, 3):
        loss = step(x)
        optimizers[1].zero_grad()
        theirs = own(x).square().sum()
        theirs.backward()
        optimizers[1].step()
        torch.testing.assert_close(loss, theirs.detach())
    torch.testing.assert_close(list(mine.parameters()), list(own.parameters()))
