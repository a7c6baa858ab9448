"""Products of matrices that are vectors, written element by element.

A library is called for as long as the arithmetic takes, and what it is given has to be in memory and is saved for the
backward, where elements can be computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def product(x: Tensor, mat2: Tensor) -> Any:
    """Columns times rows, which are rounded once as a library does, and rows times columns where no type is narrow."""
    rows, inner, columns = x.shape[1], x.shape[2], mat2.shape[2]
    if isinstance(inner, int) and inner == 1:
        return x * mat2
    single = all(isinstance(size, int) and size == 1 for size in (rows, columns))
    if single and x.dtype in (torch.float32, torch.float64):
        return (x * mat2.mT).sum(-1, keepdim=True)
    return NotImplemented


VECTORS: dict[OpOverload, Callable[..., Any]] = {aten.bmm.default: product}
"""How they are written, by overload."""
