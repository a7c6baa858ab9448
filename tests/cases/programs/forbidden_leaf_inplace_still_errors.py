"""In-place arithmetic on a leaf that requires grad is an error in eager, but the compiled version silently returns a
wrong gradient.

Reported: Lightning-AI/lightning-thunder#1284.
Right: raises RuntimeError (same as eager).
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch

EXPECT_RAISES = RuntimeError


def f(x):
    return x.mul_(3.0).sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    return f, (torch.ones(4, requires_grad=True),)
