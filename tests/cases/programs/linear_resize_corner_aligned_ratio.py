"""1-d linear upsampling with align_corners and a large ratio on a tiny input drops contributions in backward.

Reported: flagos-ai/FlagGems#5218.
Right: grads sum to the number of outputs (each output's weights sum to 1): 12 per channel, split 6/6 by symmetry.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tests.cases.harness import Record


def f(x):
    return F.interpolate(x, size=12, mode="linear", align_corners=True)


def loss(out: Any) -> torch.Tensor:
    return out.sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(22)
    return f, (torch.randn(1, 1, 2, requires_grad=True),)


def check(record: Record) -> None:
    assert torch.allclose(record.gradients[0], torch.full((1, 1, 2), 6.0), atol=1e-5)
