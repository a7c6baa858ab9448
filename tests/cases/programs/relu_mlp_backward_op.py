"""A plain Linear+ReLU net cannot train through TVM because the backward graph contains aten.threshold_backward.

Reported: pytorch/functorch#133, llvm/torch-mlir#3567.
Right: grads equal eager; ReLU gradient at exactly 0 is 0.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Record


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(32, 10), nn.Linear(10, 3)

    def forward(self, x):
        return self.l2(torch.relu(self.l1(x.view(2, 32))))


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(61)
    m = Net()
    with torch.no_grad():
        m.l1.weight[0].zero_()
        m.l1.bias[0].zero_()  # pre-activation exactly 0
    return m, (torch.randn(8, 8),)


def check(record: Record) -> None:
    assert record.parameter_gradients["l1.weight"][0].abs().sum() == 0
