"""The loss of classes on a GPU as simpler ops, which a backward pass makes again from the logits.

Kept whole, the logarithm of the softmax is what is saved for the backward pass: in float32, while logits often have 16
bits. In a language model that is the largest tensor of all. One op that reads it as a whole is enough to have it saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def stays_whole(x: Tensor) -> bool:
    """On a CPU, and of nothing."""
    return x.device.type == "cpu" or x.numel() == 0 or not x.is_floating_point()


def widened(x: Tensor) -> Tensor:
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
    """As ATen has it, 16-bit floats computed in float32."""
    if stays_whole(x):
        return NotImplemented
    wide = widened(x)
    shifted = wide - wide.amax(dim, keepdim=True)
    result = shifted - shifted.exp().sum(dim, keepdim=True).log()
    return result if half_to_float else result.to(x.dtype)


def log_softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Any:
    if stays_whole(grad):
        return NotImplemented
    wide = widened(grad)
    return (wide - widened(output).exp() * wide.sum(dim, keepdim=True)).to(dtype)


def nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Any:
    """Of rows of classes without weights; anything else stays whole. The second result is how many rows count."""
    if stays_whole(x) or x.dim() != 2 or weight is not None:
        return NotImplemented
    counts = target != ignore_index
    picked = -x.gather(1, torch.where(counts, target, 0).unsqueeze(1)).squeeze(1)
    losses, total = torch.where(counts, picked, 0), counts.sum().to(x.dtype)
    if reduction == 0:
        return losses, x.new_zeros(())
    return losses.sum() if reduction == 2 else losses.sum() / total, total


def nll_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, total: Tensor
) -> Any:
    if stays_whole(x) or x.dim() != 2 or weight is not None:
        return NotImplemented
    each = torch.where(target != ignore_index, -(grad / total if reduction == 1 else grad), 0)
    is_target = torch.arange(x.shape[1], device=x.device) == target.unsqueeze(1)
    return torch.where(is_target, each.unsqueeze(1), 0).to(x.dtype)


LOGITS: Mapping[OpOverload, Callable[..., Any]] = {
    aten._log_softmax.default: log_softmax,
    aten._log_softmax_backward_data.default: log_softmax_backward,
    aten.nll_loss_forward.default: nll_loss,
    aten.nll_loss_backward.default: nll_loss_backward,
}
