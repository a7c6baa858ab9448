"""Activation checkpointing over a block that contains in-place activation and residual add recomputes from already
modified tensors.

Reported: pytorch/pytorch#113718, pytorch/pytorch#158643.
Right: grads equal the same network without checkpointing.
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.cases.harness import Record


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def inner(self, x):
        h = self.l(x)
        h += x
        return self.act(h)

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.inner, x, use_reentrant=False)
        return x


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(68)
    return Block(), (torch.randn(3, 4, requires_grad=True),)


def loss(out: Any) -> torch.Tensor:
    return out.square().sum()


def check(record: Record) -> None:
    torch.manual_seed(68)
    b = Block()
    x = torch.randn(3, 4, requires_grad=True)
    y = b.inner(b.inner(x))
    y.square().sum().backward()
    assert torch.allclose(record.outputs[0], y, atol=1e-6)
    torch.testing.assert_close(record.gradients[0], x.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(record.parameter_gradients["l.weight"], b.l.weight.grad, rtol=1e-5, atol=1e-5)
