"""Recurrent layers break ahead-of-time training (graph break, missing workspace, heap corruption).

Reported: pytorch/pytorch#185163, pytorch/pytorch#181690.
Right: outputs, both states and all LSTM parameter grads equal eager.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        y, (h, c) = self.rnn(x)
        return self.head(y[:, -1]), h, c


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(31)
    return Seq(), (torch.randn(2, 5, 4, requires_grad=True),)
