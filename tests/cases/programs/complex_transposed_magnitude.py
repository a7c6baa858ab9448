"""abs()/angle() of a transposed complex tensor fails to compile its backward.

Reported: pytorch/pytorch#184101.
Right: grad = z/|z| for the abs part plus the angle part; equals eager.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch


def f(z):
    t = z.mT
    return t.abs() + 0.5 * t.angle()


def make() -> tuple[Any, tuple[Any, ...]]:
    g = torch.Generator().manual_seed(28)
    z = torch.complex(torch.randn(3, 4, generator=g), torch.randn(3, 4, generator=g) + 2)
    return f, (z.requires_grad_(),)
