"""Low-precision (bf16/fp16) inputs mixed with fp32 parameters: accumulated gradient dtype or implicit casts differ
from eager.

Reported: pytorch/pytorch#143755, pytorch/pytorch#124901.
Right: grad dtypes equal the dtype of their inputs; values within bf16 tolerance.
About: AOTAutograd semantics (dtype).
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record

TOLERANCE = (2e-2, 1e-2)
"""Relative and absolute: fused, bfloat16 and half round at other places."""


def f(x, w):
    h = x.float() @ w
    return h.to(torch.bfloat16).tanh(), h.half().sum(dtype=torch.float32)


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(70)
    return f, (torch.randn(4, 3).bfloat16().requires_grad_(), torch.randn(3, 5, requires_grad=True))


def check(record: Record) -> None:
    assert record.gradients[0].dtype == torch.bfloat16
    assert record.gradients[1].dtype == torch.float32
