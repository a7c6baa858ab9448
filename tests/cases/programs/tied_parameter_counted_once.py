"""The same parameter registered under two names breaks tracing or loses one of the two gradient contributions.

Reported: pytorch/pytorch#114743, NVIDIA/TransformerEngine#3437.
Right: one Parameter object, grad = sum of embedding and output-projection contributions; still the same object after
    the call.
About: aliasing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(9, 5)
        self.out = nn.Linear(5, 9, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, ids):
        return self.out(self.emb(ids).tanh())


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(47)
    return TinyLM(), (torch.tensor([[1, 4, 4], [8, 0, 2]]),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (ids,) = make()
    y = wrap(m)(ids)
    y.logsumexp(-1).sum().backward()
    return {
        "same": torch.tensor(m.emb.weight is m.out.weight),
        "n": torch.tensor(len(list(m.parameters()))),
        "g": m.emb.weight.grad.clone(),
    }


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["same"].item()
    assert result["n"].item() == 1
    assert result["g"][3].abs().sum() > 0, "row never looked up still gets the projection gradient"
