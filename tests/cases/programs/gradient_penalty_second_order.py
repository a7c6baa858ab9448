"""Differentiating twice through a compiled region gives bogus or silently detached second-order gradients instead of
right values or a clear error.

Reported: pytorch/pytorch#91469, pytorch/pytorch#181581, torchmd/torchmd-net#307.
Right: either the exact second-order gradient (penalty grad non-zero) or a documented error / logged fallback; never a
    silent wrong value.
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(42)
    return nn.Sequential(nn.Linear(3, 6), nn.Softplus(), nn.Linear(6, 1)), (torch.randn(5, 3, requires_grad=True),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    y = wrap(m)(x).sum()
    (gx,) = torch.autograd.grad(y, x, create_graph=True)
    penalty = (gx.norm(dim=1) - 1).square().mean()
    penalty.backward()
    return {"pen": penalty.detach(), "gw": m[0].weight.grad.clone()}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["gw"].abs().sum() > 1e-4
