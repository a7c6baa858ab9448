"""A generator output feeds the discriminator detached, then attached; the compiled graph frees buffers after the
first backward.

Reported: pytorch/pytorch#91542.
Right: first backward leaves generator grads None; second fills them; both equal eager.
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def nets() -> tuple[Any, Any, torch.Tensor]:
    torch.manual_seed(43)
    g = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    d = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return g, d, torch.randn(6, 2)


def make() -> tuple[Any, tuple[Any, ...]]:
    g, d, z = nets()
    return nn.Sequential(g, d), (z,)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    g, d, z = nets()
    G, Dn = wrap(g), wrap(d)
    fake = G(z)
    Dn(fake.detach()).mean().backward()
    none_before = torch.tensor(all(p.grad is None for p in g.parameters()))
    dg = d[0].weight.grad.clone()
    Dn(fake).mean().backward()
    return {"none": none_before, "dg": dg, "gg": g[0].weight.grad.clone(), "dg2": d[0].weight.grad.clone()}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["none"].item()
    assert result["gg"].abs().sum() > 0
