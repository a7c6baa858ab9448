"""A batch norm's backward without the running statistics, which it does not read in training.

Were they arguments, they would be kept for the backward while the forward changes them. AOTAutograd allows for that by
keeping them where no check of versions finds them, but so does not a checkpoint that runs the forward again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten


STATISTICS, TRAINS = slice(3, 5), 7
"""Where, among the arguments of both overloads, the running statistics stand, and whether it is in training."""


def _without_statistics(op: OpOverload) -> Callable[..., Any]:
    def written(*args: Any) -> Any:
        if not args[TRAINS] or all(held is None for held in args[STATISTICS]):
            return NotImplemented
        return op(*args[: STATISTICS.start], None, None, *args[STATISTICS.stop :])

    return written


BATCH_NORM: dict[OpOverload, Callable[..., Any]] = {
    op: _without_statistics(op) for op in (aten.native_batch_norm_backward.default, aten.batch_norm_backward.default)
}
"""The overloads that hand on what they do not read, and how they are written without it."""
