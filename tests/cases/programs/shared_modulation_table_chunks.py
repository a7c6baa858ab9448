"""Several scale/shift vectors are chunks of one parameter used by two stacked modulated norms; some chunk gradients
are never written.

Reported: pytorch/pytorch#193061.
Right: all four chunks of table.grad equal eager and are non-zero.
About: aliasing of gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.cases.harness import Record


class Mod(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.d = d
        self.table = nn.Parameter(torch.randn(4, d) * 0.2)

    def forward(self, x):
        s0, b0, s1, b1 = self.table.chunk(4, dim=0)
        x = x + F.layer_norm(x, (self.d,)) * (1 + s0) + b0
        return x + F.layer_norm(x, (self.d,)) * (1 + s1) + b1


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(25)
    return Mod(), (torch.randn(3, 11, 8, requires_grad=True),)


def check(record: Record) -> None:
    g = record.parameter_gradients["table"]
    assert (g.abs().sum(1) > 1e-3).all()
