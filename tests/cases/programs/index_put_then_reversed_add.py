"""index_put_ into a tensor followed by an in-place add of the tensor's own flip: write and permuted read get fused,
values corrupt.

Reported: pytorch/pytorch#198270.
Right: x = 2a + flip(2a) exactly.
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record

BACKWARD = False


def f(x, rows):
    x[rows] = x[rows] * 2
    x += x.flip(0)
    return x.clone()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(12)
    return f, (torch.randn(64, 16), torch.arange(64))


def check(record: Record) -> None:
    torch.manual_seed(12)
    a = torch.randn(64, 16) * 2
    assert torch.allclose(record.outputs[0], a + a.flip(0))
