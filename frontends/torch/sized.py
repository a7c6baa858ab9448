"""Calls whose gradient torch's own autograd computes with sizes as numbers, written so that they stay symbols.

Some formulas of autograd's, in C++, ask a symbol for its number: the graph then fits that size alone, and is captured
again for the next.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx


def keep_sizes(module: fx.GraphModule) -> None:
    """Put functions of our own in the place of such calls of a graph of Dynamo's, where a size is a symbol."""
    found = [node for node in module.graph.nodes if node.target in OURS and node.op in ("call_function", "call_method")]
    for node in found:
        node.op, node.target = "call_function", OURS[node.target]
    if found:
        module.recompile()


def masked_select(input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _MaskedSelect.apply(input, mask) if _symbolic(input.shape, mask.shape) else torch.masked_select(input, mask)


class _MaskedSelect(torch.autograd.Function):
    """`torch.masked_select`; each chosen element gives its gradient back to where it was."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(mask)
        ctx.size = input.shape
        return torch.masked_select(input, mask)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        (mask,) = ctx.saved_tensors
        size = torch.broadcast_shapes(ctx.size, mask.shape)
        spread = gradient.new_zeros(size).masked_scatter(mask.expand(size), gradient)
        return spread.sum_to_size(ctx.size), None


def as_strided(
    input: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> torch.Tensor:
    """`torch.as_strided`. Windows that overlap are the case in which sizes become numbers.

    Ours are of a tensor that fills its memory, in whichever order of its dimensions, and stay inside of it.
    """
    size, stride = ([operator.index(n) if isinstance(n, torch.Tensor) else n for n in ns] for ns in (size, stride))
    symbolic = _symbolic(input.shape, size, stride)
    if symbolic and _overlaps(size, stride) and input.permute(_outermost_first(input)).is_contiguous():
        first = 0 if storage_offset is None else storage_offset - input.storage_offset()
        if first >= 0 and first + _reach(size, stride) < input.numel():
            return _Windows.apply(input, size, stride, first)
    return torch.as_strided(input, size, stride, storage_offset)


class _Windows(torch.autograd.Function):
    """`torch.as_strided` of a tensor without gaps; what is seen several times gets the sum of its gradients."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], first: Any) -> torch.Tensor:
        ctx.order, ctx.size, ctx.stride, ctx.first = _outermost_first(input), size, stride, first
        ctx.of = [input.shape[dim] for dim in ctx.order]
        return torch.as_strided(input, size, stride, input.storage_offset() + first)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        places: Any = ctx.first
        for dim, (size, stride) in enumerate(zip(ctx.size, ctx.stride, strict=True)):
            along = torch.arange(size, device=gradient.device) * stride
            places = places + along.view([-1] + [1] * (len(ctx.size) - dim - 1))
        flat = gradient.new_zeros(ctx.of).flatten()
        whole = flat.index_add(0, places.flatten(), gradient.flatten()).view(ctx.of)
        return whole.permute([ctx.order.index(dim) for dim in range(whole.dim())]), None, None, None


OURS: Mapping[Any, Callable[..., Any]] = {
    "masked_select": masked_select,
    torch.masked_select: masked_select,
    "as_strided": as_strided,
    torch.as_strided: as_strided,
}
"""By the name of a method, or the function itself, as Dynamo's graphs have them."""


def _symbolic(*sizes: Iterable[Any]) -> bool:
    return any(isinstance(n, torch.SymInt) for size in sizes for n in size)


def _outermost_first(tensor: torch.Tensor) -> list[int]:
    """The dimensions in the order in which they lie in memory."""
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)


def _reach(size: Sequence[Any], stride: Sequence[Any]) -> Any:
    """How far the last element is from the first."""
    return sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def _overlaps(size: Sequence[Any], stride: Sequence[Any]) -> bool:
    """Whether an element may be seen twice."""
    reached = 0
    for step, n in sorted(zip(stride, size, strict=True), key=lambda pair: pair[0]):
        if step <= reached and n != 1:
            return True
        reached = reached + (n - 1) * step
    return False
