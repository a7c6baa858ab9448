"""In training mode the importer throws away the new running statistics, so a later eval() uses the initial ones.

Reported: apache/tvm#18518, apache/tvm#17752, apache/tvm#18703.
Right: running stats move by momentum after each train step; eval output uses them.
About: buffers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap

TOLERANCE = (2e-4, 1e-4)
"""Relative and absolute: a bias before a norm has no gradient but rounding."""


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(36)
    m = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, momentum=0.5), nn.ReLU())
    return m, (torch.randn(4, 2, 3, 3),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    c = wrap(m)
    for k in range(2):
        c(x + k).sum().backward()
    m.eval()
    with torch.no_grad():
        e = c(x)
    return {"rm": m[1].running_mean.clone(), "rv": m[1].running_var.clone(), "eval": e}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["rm"].abs().max() > 1e-3
    assert (result["rv"] - 1).abs().max() > 1e-3
