"""A batch norm's backward without the running statistics, which it does not read in training.

Were they arguments, they would be kept for the backward while the forward changes them. AOTAutograd allows for that by
keeping them where no check of versions finds them, but so does not a checkpoint that runs the forward again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def _native(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    *more: Any,
) -> Any:
    if not train or (running_mean is None and running_var is None):
        return NotImplemented
    statistics = None, None, save_mean, save_invstd
    return aten.native_batch_norm_backward.default(grad_out, input, weight, *statistics, train, *more)


def _any(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    *more: Any,
) -> Any:
    if not update or (running_mean is None and running_var is None):
        return NotImplemented
    return aten.batch_norm_backward.default(grad_out, input, weight, None, None, save_mean, save_var, update, *more)


BATCH_NORM: dict[OpOverload, Callable[..., Any]] = {
    aten.native_batch_norm_backward.default: _native,
    aten.batch_norm_backward.default: _any,
}
"""The overloads that hand on what they do not read, and how they are written without it."""
