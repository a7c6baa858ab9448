"""requires_grad of a parameter is toggled between calls (progressive unfreezing); the old forward-only or partial
graph is reused.

Reported: pytorch/pytorch#100977, pytorch/pytorch#140707.
Right: frozen step: backbone grad None; unfrozen step: grad equals eager.
About: guards/specialisation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(56)
    return nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 1)), (torch.randn(5, 3),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    c = wrap(m)
    m[0].requires_grad_(False)
    c(x).sum().backward()
    frozen_none = torch.tensor(m[0].weight.grad is None)
    m.zero_grad()
    m[0].requires_grad_(True)
    c(x).sum().backward()
    return {"none": frozen_none, "g0": m[0].weight.grad.clone(), "g2": m[2].weight.grad.clone()}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["none"].item()
    assert result["g0"].abs().sum() > 0
