"""Negative (counted-from-the-end) indices are forwarded raw to the gather kernel, giving zeros or out-of-bounds
garbage.

Reported: apache/tvm#19531, apache/tvm#20217, apache/tvm#19436.
Right: equals NumPy-style indexing; gradient accumulates at the wrapped rows.
About: operator coverage (silent).
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record


def f(x, i):
    return x[i] + x[:, [-1, 0]].sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(20)
    return f, (torch.randn(5, 4, requires_grad=True), torch.tensor([-1, 2, -5, -1]))


def check(record: Record) -> None:
    x = record.arguments[0]
    s = x[:, 3].sum() + x[:, 0].sum()
    assert torch.allclose(record.outputs[0][0], x[4] + s, atol=1e-5)
