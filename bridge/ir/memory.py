"""Whether tensors lie in the same memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch


def overlapping(tensors: Sequence[torch.Tensor], changed: Collection[int]) -> bool:
    """Whether the bytes from the first to the last of a tensor meet those of another, and one of them is changed.

    changed: the positions of those that are. Views that lie between one another count as meeting.
    """
    spans = sorted((*_span(tensor), n in changed) for n, tensor in enumerate(tensors) if tensor.numel())
    reach, any_changed = -1, False
    for begin, end, is_changed in spans:
        meets = begin < reach
        if meets and (is_changed or any_changed):
            return True
        any_changed = is_changed or (meets and any_changed)
        reach = max(reach, end)
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()
