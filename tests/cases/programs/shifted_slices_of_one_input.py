"""Tokens and targets are two overlapping slices of one id tensor; slice outputs are wired to the wrong consumer and
the loss gradient is row-shifted.

Reported: pytorch/pytorch#190938.
Right: loss equals cross-entropy of positions t against token t+1; grads equal eager.
About: aliasing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.cases.harness import Record


class NextToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.o = nn.Embedding(11, 6), nn.Linear(6, 11)

    def forward(self, inp, tgt):
        return F.cross_entropy(self.o(self.e(inp)).flatten(0, 1), tgt.flatten())


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(64)
    ids = torch.randint(0, 11, (3, 8))
    return NextToken(), (ids[:, :-1], ids[:, 1:])


def check(record: Record) -> None:
    assert record.parameter_gradients["e.weight"].abs().sum() > 0
