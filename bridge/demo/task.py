"""What the demonstration trains: a model, its data and its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

Batch = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Task:
    """One training.

    make_model: a fresh model in training mode; `model(*batch)` is the loss, a 0-d tensor.
    batches: the batches of the training in order, the same ones each time it is called. steps: how many they are.
    score: after the training, the percentage of the test set that the model gets right; None where there is no such.
    """

    name: str
    title: str
    steps: int
    make_model: Callable[[], nn.Module]
    batches: Callable[[], Iterator[Batch]]
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    score: Callable[[nn.Module], float] | None = None
