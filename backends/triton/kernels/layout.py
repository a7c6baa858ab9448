"""How a launcher sees tensors: as few dimensions as their strides allow, and the types that kernels calculate in."""

from __future__ import annotations

from collections.abc import Sequence

import torch

FAR = 2**31
"""Elements from which on a position does not fit in 32 bits."""


def merged(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """A shape and strides over it, with neighbours made one wherever all strides allow; the last dimension first.

    There is always one dimension.
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for dim in reversed(range(len(shape))):
        if shape[dim] == 1:
            continue
        if sizes and all(s[dim] == own[-1] * sizes[-1] for s, own in zip(strides, steps)):
            sizes[-1] *= shape[dim]
            continue
        sizes.append(shape[dim])
        for own, given in zip(steps, strides):
            own.append(given[dim])
    if not sizes:
        return (1,), *((0,) for _ in strides)
    return tuple(sizes), *(tuple(own) for own in steps)


def without(strides: Sequence[int], dim: int) -> tuple[int, ...]:
    """Strides with which one dimension leads nowhere."""
    return tuple(0 if at == dim else stride for at, stride in enumerate(strides))


def is_far(*tensors: torch.Tensor) -> bool:
    """Whether a position in one of the tensors needs 64 bits."""
    return any(
        1 + sum((size - 1) * abs(stride) for size, stride in zip(x.shape, x.stride())) >= FAR for x in tensors
    ) or any(x.numel() >= FAR for x in tensors)


def around(shape: Sequence[int], dim: int) -> tuple[int, int, int]:
    """The number of elements before a dimension, in it and behind it; a 0-d tensor has one of one element."""
    if not shape:
        return 1, 1, 1
    before, behind = 1, 1
    for at, size in enumerate(shape):
        before, behind = (before * size, behind) if at < dim else (before, behind * size if at > dim else behind)
    return before, shape[dim], behind


SUMMED_IN = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.uint8: torch.int32,
}
"""Types that are too narrow to add up in, or that no atomic addition is for."""
