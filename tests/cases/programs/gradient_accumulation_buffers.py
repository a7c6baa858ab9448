"""AccumulateGrad may keep the buffer the compiled backward returned; reusing that buffer on the next micro-batch
corrupts the running sum.

Reported: pytorch/pytorch#119334, pytorch/pytorch#96693, pytorch/pytorch#169545.
Right: sum over 4 micro-batches equals one full-batch gradient.
About: optimizer state/gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(51)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1)), (torch.randn(4, 5),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, _ = make()
    c = wrap(m)
    gen = torch.Generator().manual_seed(9)
    xs = torch.randn(16, 5, generator=gen)
    for k in range(4):
        c(xs[4 * k : 4 * k + 4]).sum().backward()
    acc = [p.grad.clone() for p in m.parameters()]
    m.zero_grad(set_to_none=False)
    m(xs).sum().backward()
    full = [p.grad.clone() for p in m.parameters()]
    return {"acc0": acc[0], "full0": full[0], "acc2": acc[2], "full2": full[2]}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert torch.allclose(result["acc0"], result["full0"], atol=1e-4)
    assert torch.allclose(result["acc2"], result["full2"], atol=1e-4)
