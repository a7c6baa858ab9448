"""A custom autograd.Function that returns its input unchanged but scales the gradient is treated as a no-op.

Reported: pytorch/pytorch#102970.
Right: x.grad = 0.1 * upstream, forward value unchanged.
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record


class GradientBrake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t

    @staticmethod
    def backward(ctx, g):
        return 0.1 * g


def f(x):
    return GradientBrake.apply(x)


def loss(out: Any) -> torch.Tensor:
    return out.sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(6)
    return f, (torch.randn(3, 2, requires_grad=True),)


def check(record: Record) -> None:
    assert torch.allclose(record.gradients[0], torch.full((3, 2), 0.1))
