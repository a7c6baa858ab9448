"""A Python if on a tensor value becomes an If node (or is frozen to one side) and the gradient builder rejects or
mis-selects it.

Reported: microsoft/onnxruntime#10517.
Right: each call follows its own branch; grads equal eager for both signs.
About: control flow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        if x.sum() > 0:
            return self.a(x).tanh()
        return self.b(x).sigmoid() * 2


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(62)
    return Gate(), (torch.ones(2, 3),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    c = wrap(m)
    y1 = c(x)
    y1.sum().backward()
    b_none = torch.tensor(m.b.weight.grad is None)
    y2 = c(-x)
    y2.sum().backward()
    return {
        "y1": y1.detach(),
        "y2": y2.detach(),
        "ga": m.a.weight.grad.clone(),
        "gb": m.b.weight.grad.clone(),
        "bn": b_none,
    }
