"""A functional scatter result is written into the input's own buffer, and a later zero_() of that input wipes the
returned result.

Reported: pytorch/pytorch#198094.
Right: result keeps original rows with row 1 replaced; the input is all zeros afterwards.
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record

BACKWARD = False


def f(a, row):
    r = a.select_scatter(row, 0, 1)
    a.zero_()
    return r


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(10)
    return f, (torch.randn(3, 4), torch.randn(4))


def check(record: Record) -> None:
    assert torch.equal(record.outputs[0][1], record.arguments[1])
    assert record.outputs[0].abs().sum() > 0
    assert record.arguments[0].abs().sum() == 0
