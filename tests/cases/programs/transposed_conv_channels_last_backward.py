"""Stack of transposed convolutions in channels_last: predicted gradient strides differ from the real ones and an
assertion fires.

Reported: pytorch/pytorch#171622.
Right: values equal eager; no stride assertion.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(32)
    m = nn.Sequential(
        nn.ConvTranspose2d(6, 4, 3, stride=2), nn.ReLU(), nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1)
    )
    m = m.to(memory_format=torch.channels_last)
    x = torch.randn(2, 6, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    return m, (x,)
