"""A training step of one model, through eager, Inductor and the bridge in turns in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import nn

import bridge
from bridge.bench.memory import peak_bytes
from bridge.bench.summary import JOINED
from bridge.demo.timing import interleaved
from bridge.errors import NotCompilable
from bridge.ledger import Measure

LossFn = Callable[[Any], torch.Tensor]

TARGETS: Mapping[str, Callable[[Any, LossFn], Any]] = {
    "eager": lambda module, loss_fn: WithLoss(module, loss_fn),
    "inductor": lambda module, loss_fn: WithLoss(torch.compile(module), loss_fn),  # type: ignore[arg-type]
    "bridge": lambda module, loss_fn: WithLoss(bridge.compile(module), loss_fn),
    JOINED: lambda module, loss_fn: bridge.compile(WithLoss(module, loss_fn), fuse_joint=True),
}
"""From a module and a loss function to what gives the loss. Joined with its backward, the loss is in the graph too."""
SHORTEST = 5e-3
"""Seconds that one reading takes at least: small models are stepped several times for it."""
TOGETHER = 0.5
"""Seconds after which a round of all targets counts as long: then fewer rounds are made."""
FEWEST = 7

Step = Callable[[], None]


class WithLoss(nn.Module):
    """A module and the loss of its result."""

    def __init__(self, module: nn.Module, loss_fn: LossFn) -> None:
        super().__init__()
        self.module, self.loss_fn = module, loss_fn

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.loss_fn(self.module(*args, **kwargs))


class Stepped:
    """Copies of a model, one a target, and how each does a training step.

    Making it runs the first step of each, which compiles; `first` holds how many seconds that took. The gradients are
    made anew in each step. loss_fn: from the result to a scalar. Raises NotCompilable for what is no module.
    """

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], loss_fn: Callable[..., Any]):
        if not isinstance(model, nn.Module):
            raise NotCompilable(f"{type(model).__name__} is no module; a training step needs one")
        self.steps: dict[str, Step] = {}
        self.first: dict[str, float] = {}
        for target, compile in TARGETS.items():
            module, given, named = copy.deepcopy((model, args, kwargs))
            step = training_step(compile(module, loss_fn), list(module.parameters()), given, named)
            torch.manual_seed(0)
            self.first[target] = _seconds(step)
            self.steps[target] = step

    def measures(self, name: str, rounds: int) -> list[Measure]:
        """The first steps, `rounds` readings of steady ones (fewer of a slow model), and the peaks of memory."""
        for step in self.steps.values():
            step()
        slowest = {target: _seconds(step) for target, step in self.steps.items()}
        times = max(1, round(SHORTEST / slowest["eager"]))
        rounds = max(min(rounds, FEWEST), min(rounds, round(rounds * TOGETHER / sum(slowest.values()))))
        readings = interleaved({target: repeated(step, times) for target, step in self.steps.items()}, rounds)
        return [
            *(Measure("first step", (seconds,), "s", target, name) for target, seconds in self.first.items()),
            *(Measure("step", tuple(r / times for r in rs), "s", target, name) for target, rs in readings.items()),
            *(Measure("peak memory", (float(peak_bytes(s)),), "bytes", t, name) for t, s in self.steps.items()),
        ]


def training_step(
    loss: Callable[..., torch.Tensor],
    parameters: list[nn.Parameter],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Step:
    """Forward, loss and backward, the gradients made anew each time."""

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss(*args, **kwargs).backward()

    return step


def repeated(step: Step, times: int) -> Step:
    def steps() -> None:
        for _ in range(times):
            step()

    return steps


def _seconds(step: Step) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start
