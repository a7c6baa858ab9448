"""Tangents that arrive channels_last, or as a stride-0 expand, are assumed contiguous by the compiled backward.

Reported: pytorch/pytorch#134644, pytorch/pytorch#183017.
Right: same grads for contiguous, channels_last and expanded upstream gradients.
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(34)
    m = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.SiLU())
    return m, (torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    res = {}
    for tag in ("contig", "cl", "expand"):
        m, (x,) = make()
        y = wrap(m)(x)
        base = torch.full((2, 4, 5, 5), 0.75)
        t = {
            "contig": base,
            "cl": base.to(memory_format=torch.channels_last),
            "expand": torch.tensor(0.75).expand(2, 4, 5, 5),
        }[tag]
        y.backward(t)
        res[tag] = m[0].weight.grad.clone()
    return res


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert torch.allclose(result["contig"], result["cl"], atol=1e-4)
    assert torch.allclose(result["contig"], result["expand"], atol=1e-4)
