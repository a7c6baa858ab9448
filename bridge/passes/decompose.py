"""Which ops are written as simpler ATen ops while the graph is captured, before any backend is asked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from bridge.passes.bags import BAGS
from bridge.passes.batch_norm import BATCH_NORM
from bridge.passes.each import over_lists
from bridge.passes.logits import LOGITS
from bridge.passes.matrices import MATRICES
from bridge.passes.vectors import VECTORS

aten = torch.ops.aten

KEPT_WHOLE: tuple[OpOverload, ...] = (
    # Its decomposition returns the attention matrix where its own backward expects the logarithm of the sums:
    # wrong gradients without an error.
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    # Composites that one conversion writes better than the dozen ops they decompose into.
    aten._log_softmax_backward_data.default,
    aten._softmax_backward_data.default,
    aten.embedding_dense_backward.default,
    aten.gelu.default,
    aten.gelu_backward.default,
    aten.native_batch_norm_backward.default,
    aten.native_group_norm.default,
    aten.native_group_norm_backward.default,
    aten.native_layer_norm.default,
    aten.native_layer_norm_backward.default,
    aten.nll_loss_backward.default,
    aten.nll_loss_forward.default,
    aten.silu.default,
    aten.silu_backward.default,
)
"""Overloads that reach the backends as they are."""

TRUTHS: dict[OpOverload, Callable[..., Any]] = {
    aten._is_all_true.default: lambda given: aten.all.default(given),
    aten._is_any_true.default: lambda given: aten.any.default(given),
}
"""Other names for what there is a row of."""


def _of_one(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Tensors laid side by side, as a copy where there is one: a split has that made again, and does not save it."""
    alone = tensors[0]
    known = len(tensors) == 1 and all(isinstance(size, int) for size in alone.shape)
    if not known or not alone.is_contiguous() or alone.is_conj() or alone.is_neg():
        return NotImplemented
    return aten.clone.default(alone)


@functools.cache
def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Core ATen's table without what is kept whole, and our own. Kept: torch takes a fifth of a second to write it."""
    table = torch.export.default_decompositions()
    kept = {op: how for op, how in table.items() if isinstance(op, OpOverload) and op not in KEPT_WHOLE}
    own = {**TRUTHS, aten.cat.default: _of_one}
    return {**kept, **own, **BAGS, **BATCH_NORM, **LOGITS, **MATRICES, **VECTORS, **over_lists()}
