"""Gradient of slice_scatter with respect to the untouched part of the input is zeroed.

Reported: pytorch/pytorch#180164.
Right: x.grad is 0 inside the written band and 1 elsewhere; y.grad all ones.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record


def f(x, y):
    return x.slice_scatter(y, dim=1, start=2, end=5).sum(dim=1)


def loss(out: Any) -> torch.Tensor:
    return out.sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(15)
    return f, (torch.randn(3, 9, 4, requires_grad=True), torch.randn(3, 3, 4, requires_grad=True))


def check(record: Record) -> None:
    want = torch.ones(3, 9, 4)
    want[:, 2:5] = 0
    assert torch.equal(record.gradients[0], want)
    assert torch.equal(record.gradients[1], torch.ones(3, 3, 4))
