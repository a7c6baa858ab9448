"""Real tensors in place of fake ones, to try a call on, and what the call dispatches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bridge.ir.call import hint_of


def zeros(like: torch.Tensor) -> torch.Tensor:
    """A tensor as a fake one says, of zeros."""
    made = torch.empty_strided(tuple(like.shape), like.stride(), dtype=like.dtype, device=like.device)
    return made.zero_()


def dispatched(call: Callable[..., Any], values: Sequence[torch.Tensor]) -> dict[str, int]:
    """Which overloads a call on these values dispatches, and how often."""
    counts: Counter[str] = Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            counts[str(func)] += 1
            return func(*args, **(kwargs or {}))

    with Count():
        call(*values)
    return dict(counts)


def drawn(like: torch.Tensor, generator: torch.Generator, below: int | None = None) -> torch.Tensor:
    """A tensor as a fake one says: normal numbers; or whole ones from 0 on, all `below` a number where it is given.

    A symbolic size is what it was at capture.
    """
    shape, strides = ([hint_of(n) for n in numbers] for numbers in (like.shape, like.stride()))
    made = torch.empty_strided(shape, strides, dtype=like.dtype, device=like.device)
    once = made[tuple(slice(1) if stride == 0 else slice(None) for stride in strides)]
    if like.dtype.is_floating_point or like.dtype.is_complex:
        once.normal_(generator=generator)
    else:
        highest = 2 if like.dtype == torch.bool else min(100, torch.iinfo(like.dtype).max)
        once.random_(0, max(1, highest if below is None else below), generator=generator)
    return made
