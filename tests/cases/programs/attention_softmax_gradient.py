"""Multi-head attention forward agrees but the softmax decomposition makes the projection gradients drift.

Reported: pytorch/pytorch#152309.
Right: in_proj/out_proj grads equal eager (rtol 1e-4) and Q/K grads are near zero when all keys are identical.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(16, 4, batch_first=True)
        with torch.no_grad():
            for p in self.mha.parameters():
                p.fill_(0.1)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0]


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(26)
    return Attn(), (torch.randn(2, 6, 16, requires_grad=True),)
