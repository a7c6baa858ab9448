"""convolution_backward with stride, padding, dilation and groups together is only partly lowered.

Reported: llvm/torch-mlir#4384.
Right: input/weight/bias grads equal eager for 1-d, 2-d and 3-d.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(4, 4, 3, stride=2, padding=2, dilation=2, groups=2)
        self.b = nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=2)
        self.c = nn.Conv3d(2, 2, 2, stride=2, padding=1, groups=2)

    def forward(self, x, y, z):
        return self.a(x), self.b(y), self.c(z)


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(37)

    def r(*s):
        return torch.randn(*s, requires_grad=True)

    return Mix(), (r(2, 4, 9), r(1, 4, 7, 6), r(1, 2, 4, 4, 4))
