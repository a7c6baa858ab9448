"""Class weights + label smoothing + ignored targets in one cross-entropy: crash or ignored rows leaking into loss and
gradient.

Reported: pytorch/pytorch#69339, pytorch/pytorch#73205, linkedin/Liger-Kernel#198.
Right: rows with target -100 have exactly zero gradient; loss equals eager.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Record


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.ce = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 2.0, 1.0, 0.1]), label_smoothing=0.2, ignore_index=-100)

    def forward(self, z, y):
        return self.ce(z, y)


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(29)
    return Head(), (torch.randn(5, 4, requires_grad=True), torch.tensor([1, -100, 3, 0, -100]))


def check(record: Record) -> None:
    g = record.gradients[0]
    assert g[1].abs().sum() == 0
    assert g[4].abs().sum() == 0
    assert g[0].abs().sum() > 0
