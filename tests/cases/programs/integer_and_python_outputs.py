"""Integer tensors and plain ints among the outputs get bogus tangents, or the gradient builder refuses non-
differentiable outputs.

Reported: microsoft/onnxruntime#7048, pytorch/pytorch#93442, pytorch/xla#7735.
Right: dtype/type of every output preserved; grads only through the float output.
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)

    def forward(self, x, ids):
        z = self.gate(x)
        top = z.argmax(-1)
        return {"p": z.softmax(-1), "top": top, "hit": (top == ids), "n": x.shape[0], "none": None}


def loss(out: Any) -> torch.Tensor:
    return out["p"][:, 0].square().sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(46)
    return Router(), (torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
