"""The same tensor is passed to two arguments of a custom Function whose backward gives different grads per slot; one
contribution is dropped.

Reported: pytorch/pytorch#181146.
Right: x.grad = 2*g + 5*g = 7 with ones tangent.
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record


class TwoSlot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a + b

    @staticmethod
    def backward(ctx, g):
        return 2 * g, 5 * g


def f(x):
    return TwoSlot.apply(x, x)


def loss(out: Any) -> torch.Tensor:
    return out.sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(7)
    return f, (torch.randn(4, requires_grad=True),)


def check(record: Record) -> None:
    assert torch.allclose(record.gradients[0], torch.full((4,), 7.0))
