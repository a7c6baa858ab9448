"""Read-modify-write through a repeated index list is applied twice instead of once.

Reported: pytorch/pytorch#174074.
Right: row 2 is tripled once, not nine-fold.
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Record

BACKWARD = False


def f(x):
    x[[2, 2]] += 2 * x[[2, 2]]
    return x.clone()


def make() -> tuple[Any, tuple[Any, ...]]:
    return f, (torch.arange(1.0, 9.0).reshape(4, 2),)


def check(record: Record) -> None:
    assert torch.allclose(record.outputs[0][2], 3 * torch.tensor([5.0, 6.0]))
