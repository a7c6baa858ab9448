"""The first call happens under no_grad/inference_mode; the forward-only artefact is then reused when training starts
and gradients are missing.

Reported: pytorch/pytorch#100977, pytorch/pytorch#135892.
Right: after inference calls, a training call still yields grads equal to eager.
About: guards/specialisation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(41)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), (torch.randn(3, 4),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    c = wrap(m)
    with torch.no_grad():
        a = c(x)
    with torch.inference_mode():
        c(x).clone()
    y = c(x)
    y.square().sum().backward()
    return {"a": a, "y": y.detach(), "g0": m[0].weight.grad, "g2": m[2].bias.grad}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert torch.allclose(result["a"], result["y"])
    assert result["g0"].abs().sum() > 0
