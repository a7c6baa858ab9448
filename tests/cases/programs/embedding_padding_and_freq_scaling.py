"""Embedding with padding_idx and scale_grad_by_freq: padding row must get no gradient and frequent rows a divided
one; backends crash or ignore both flags.

Reported: pytorch/pytorch#95182, google/torchax#11, pytorch/pytorch#53053.
Right: row 0 grad = 0; row 3 (seen 3 times) grad = mean of its tangents.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tests.cases.harness import Record

IDX = torch.tensor([[0, 3, 3], [5, 0, 3]])


def f(table):
    return F.embedding(IDX, table, padding_idx=0, scale_grad_by_freq=True)


def loss(out: Any) -> torch.Tensor:
    return out.sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(19)
    return f, (torch.randn(7, 2, requires_grad=True),)


def check(record: Record) -> None:
    g = record.gradients[0]
    assert torch.equal(g[0], torch.zeros(2))
    assert torch.allclose(g[3], torch.ones(2))
    assert torch.equal(g[5], torch.ones(2))
