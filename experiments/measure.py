"""Whether gradients are right, and how long things take: the same yardsticks for every experiment and test."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from bridge.demo.timing import interleaved

__all__ = [
    "Gradients",
    "WrongGradient",
    "gradients",
    "interleaved",
    "largest",
    "reference_gradients",
    "wrong_gradients",
]

Gradients = Mapping[str, torch.Tensor]
"""The gradient of each parameter by its name."""


OFF = "off by"
"""What is said of a number that is too far from the exact one, and of nothing else that is wrong."""


@dataclass(frozen=True)
class WrongGradient:
    """A parameter whose gradient is further from the exact one than is allowed."""

    name: str
    error: float
    allowed: float

    def __str__(self) -> str:
        return f"{self.name}: {OFF} {self.error:.3g}, allowed {self.allowed:.3g}"


def gradients(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], seed: int = 0
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss that `module(*args, **kwargs)` is, and its gradients, random numbers drawn from the seed."""
    module.zero_grad()
    torch.manual_seed(seed)
    loss = module(*args, **kwargs)
    loss.backward()
    found = {name: p.grad.detach().clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return loss.detach(), found


def reference_gradients(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], seed: int = 0
) -> dict[str, torch.Tensor]:
    """The gradients of a copy of an uncompiled module in float64."""

    def double(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    exact = copy.deepcopy(module).double()
    return gradients(exact, tree_map(double, args), tree_map(double, dict(kwargs)), seed)[1]


def wrong_gradients(found: Gradients, eager: Gradients, exact: Gradients) -> list[WrongGradient]:
    """The gradients that are wrong: missing, too many, or further from the exact ones than the largest of

    twice eager's own error, 1e-5 of the largest element of the exact gradient, and 1e-7 of the model's largest.
    """
    wrong = [WrongGradient(name, float("inf"), 0.0) for name in sorted(found.keys() ^ exact.keys())]
    scale = max((largest(gradient) for gradient in exact.values()), default=0.0)
    for name in sorted(found.keys() & exact.keys()):
        error = largest(found[name].double() - exact[name])
        own = largest(eager[name].double() - exact[name])
        allowed = max(2 * own, 1e-5 * largest(exact[name]), 1e-7 * scale)
        if not error <= allowed:
            wrong.append(WrongGradient(name, error, allowed))
    return wrong


def train(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    steps: int,
    make_optimizer: Callable[[Any], torch.optim.Optimizer],
    seed: int = 0,
) -> list[float]:
    """The losses of some steps on the same inputs, random numbers drawn from the seed."""
    optimizer = make_optimizer(module.parameters())
    torch.manual_seed(seed)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module(*args, **kwargs)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def largest(tensor: torch.Tensor) -> float:
    """The largest absolute value; 0 of an empty tensor, NaN where there is one."""
    return tensor.abs().max().item() if tensor.numel() else 0.0
