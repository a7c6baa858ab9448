"""Train a task from a seed, and time one training step of several models against one another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
from torch import nn

from bridge.demo.task import Batch, Task
from bridge.demo.timing import interleaved

SEED = 0


@dataclass(frozen=True)
class Training:
    """What a training gave. first_call: seconds of the first step, in which a compiler compiles."""

    losses: tuple[float, ...]
    first_call: float


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One training step. Returns the loss."""
    optimizer.zero_grad()
    loss = model(*batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def fresh_model(task: Task) -> nn.Module:
    """The task's model with the weights of the seed: the same each time."""
    torch.manual_seed(SEED)
    return task.make_model()


def train(task: Task, model: nn.Module, each_step: Callable[[], object], steps: int | None = None) -> Training:
    """Train `model` on the task's batches (the first `steps` of them), dropout drawn from the seed."""
    optimizer = task.make_optimizer(model.parameters())
    torch.manual_seed(SEED)
    losses: list[float] = []
    first_call = 0.0
    for batch in itertools.islice(task.batches(), steps):
        start = perf_counter()
        losses.append(step(model, optimizer, batch))
        first_call = first_call or perf_counter() - start
        each_step()
    return Training(tuple(losses), first_call)


def step_times(
    task: Task, models: Mapping[str, nn.Module], rounds: int, each_round: Callable[[], object]
) -> dict[str, tuple[float, ...]]:
    """Seconds of one step of each model, `rounds` times."""
    batch = next(task.batches())
    optimizers = {name: task.make_optimizer(model.parameters()) for name, model in models.items()}
    steps = {name: partial(step, model, optimizers[name], batch) for name, model in models.items()}
    return interleaved(steps, rounds, each_round)
