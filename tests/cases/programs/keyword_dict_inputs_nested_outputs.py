"""Models called with keyword/dict batches that return nested containers lose the structure or mix up gradients.

Reported: Lightning-AI/lightning-thunder#1279, pytorch/pytorch#95182.
Right: same container types, keys and order; loss gradient reaches all parameters.
About: calling convention.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap

Out = collections.namedtuple("Out", "loss hidden extras")


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, batch, *, scale=1.0, mask=None):
        h = self.a(batch["x"])
        if mask is not None:
            h = h * mask
        z = self.b(h) * scale
        return Out((z - batch["y"]).square().mean(), [h, {"z": z}], {"scale": scale, "none": None})


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(67)
    return M(), ({"x": torch.randn(5, 3), "y": torch.randn(5, 2)},)


def loss(out: Any) -> torch.Tensor:
    return out.loss


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (batch,) = make()
    o = wrap(m)(batch, scale=0.5, mask=torch.tensor([1.0, 0.0, 1.0, 1.0]))
    o.loss.backward()
    return {
        "type": torch.tensor(type(o).__name__ == "Out" and o.extras["scale"] == 0.5 and o.extras["none"] is None),
        "z": o.hidden[1]["z"].detach(),
        "ga": m.a.weight.grad.clone(),
    }


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["type"].item()
    assert result["ga"][1].abs().sum() == 0
