"""gather with a repeated index must add the contributions; the buggy kernel keeps only the last one.

Reported: pytorch/pytorch#1631, pymc-devs/pytensor#2242.
Right: grad at the repeated source = sum of all tangents that read it.
About: operator coverage/backward.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record

T = torch.tensor([[0.5, 1.5, 2.0, 4.0]])


def f(x, i):
    return x.gather(1, i)


def loss(out: Any) -> torch.Tensor:
    return (out * T).sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    return f, (torch.tensor([[3.0, 1.0, 2.0]], requires_grad=True), torch.tensor([[0, 0, 2, 0]]))


def check(record: Record) -> None:
    assert torch.equal(record.gradients[0], torch.tensor([[6.0, 0.0, 2.0]]))
