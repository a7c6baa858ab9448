"""A buffer registered with persistent=False is absent from state_dict and the importer fails with KeyError.

Reported: apache/tvm#18357.
Right: runs; grads equal eager.
About: importer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Pos(nn.Module):
    ids: torch.Tensor

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 4)
        self.register_buffer("ids", torch.arange(12), persistent=False)

    def forward(self, x):
        return x + self.emb(self.ids[: x.shape[1]])


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(58)
    return Pos(), (torch.randn(2, 5, 4, requires_grad=True),)
