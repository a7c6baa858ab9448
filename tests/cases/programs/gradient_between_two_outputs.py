"""autograd.grad of one output with respect to another output of the same compiled call returns None.

Reported: pytorch/pytorch#132929.
Right: dz/dh equals the head weight row, as in eager; or an explicit logged fallback.
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


class TwoStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = self.enc(x)
        return h, self.head(h)


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(65)
    return TwoStage(), (torch.randn(2, 3),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    h, z = wrap(m)(x)
    (g,) = torch.autograd.grad(z.sum(), h, allow_unused=True)
    return {
        "is_none": torch.tensor(g is None),
        "g": torch.zeros(2, 4) if g is None else g,
        "w": m.head.weight.detach().clone(),
    }


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert not result["is_none"].item()
    assert torch.allclose(result["g"], result["w"].expand(2, 4))
