"""Bags of embeddings written as lookups and sums over rows: sums and means; a bag's largest row is left to ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten

SUM, MEAN = 0, 1


def bags_of(indices: Tensor, offsets: Tensor) -> Tensor:
    """The number of the bag that each index is in. indices: (n,). offsets: (bags,), where each begins."""
    positions = torch.arange(indices.numel(), dtype=offsets.dtype, device=indices.device)
    return (offsets.unsqueeze(0) <= positions.unsqueeze(1)).sum(1) - 1


def shares(rows: Tensor, indices: Tensor, weights: Tensor | None, padding: int) -> Tensor:
    """Rows (n, width) as they count: weighted, and zero where the index is the padding."""
    rows = rows if weights is None else rows * weights.unsqueeze(1)
    return rows if padding < 0 else torch.where((indices != padding).unsqueeze(1), rows, 0)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The bags (bags, width), and for the backward the bag of each index and the size of each bag."""
    if mode not in (SUM, MEAN) or sparse or indices.dim() != 1:
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    bags = bags_of(indices, starts)
    rows = shares(weight.index_select(0, indices), indices, per_sample_weights, padding_idx)
    made = weight.new_zeros(starts.numel(), weight.shape[1]).index_add(0, bags, rows)
    counted = (indices != padding_idx).to(offsets.dtype)
    sizes = torch.zeros_like(starts).index_add(0, bags, counted)
    made = made / sizes.clamp(min=1).unsqueeze(1) if mode == MEAN else made
    return made, bags, sizes, torch.empty_like(starts)


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """The gradient of the table (num_weights, width)."""
    if mode not in (SUM, MEAN) or sparse or scale_grad_by_freq:
        return NotImplemented
    grad = grad / bag_size.clamp(min=1).unsqueeze(1) if mode == MEAN else grad
    rows = shares(grad.index_select(0, offset2bag), indices, per_sample_weights, padding_idx)
    return grad.new_zeros(num_weights, grad.shape[1]).index_add(0, indices, rows)


def embedding_bag_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    """The gradient of the weight of each index (n,)."""
    rows = grad.index_select(0, offset2bag) * weight.index_select(0, indices)
    return shares(rows, indices, None, padding_idx).sum(1)


BAGS: dict[OpOverload, Callable[..., Any]] = {
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
    aten._embedding_bag_backward.default: embedding_bag_backward,
    aten._embedding_bag_per_sample_weights_backward.default: embedding_bag_weights_backward,
}
"""How they are written, by overload."""
