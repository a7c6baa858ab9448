"""Attention whose mask comes from ids.eq(pad) expanded and written with masked_fill_ crashes the Relax importer.

Reported: apache/tvm#18407.
Right: padded keys get zero attention; grads finite and equal eager.
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Record


class MaskedAttn(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(10, 8)
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, ids):
        h = self.e(ids)
        s = self.q(h) @ self.k(h).transpose(-2, -1) / 8**0.5
        pad = ids.eq(0)[:, None, :].expand_as(s)
        s.masked_fill_(pad, -1e9)
        return s.softmax(-1) @ self.v(h)


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(59)
    return MaskedAttn(), (torch.tensor([[3, 5, 0, 0], [1, 2, 9, 0]]),)


def check(record: Record) -> None:
    assert all(torch.isfinite(g).all() for g in record.parameter_gradients.values())
