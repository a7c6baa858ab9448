"""Random tensors of symbolic sizes whose call names a generator, be it None: torch takes numbers alone there."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

KEPT: list[torch.library.Library] = []
"""What was registered holds as long as this does."""


@functools.cache
def take_symbols() -> None:
    """Give these calls a rule for the shape, once in a process. Numbers are drawn as before."""
    rules = torch.library.Library("aten", "IMPL")
    rules.impl("rand.generator", _floats, "Meta")
    rules.impl("randn.generator", _floats, "Meta")
    rules.impl("randint.generator", lambda high, size, **given: _integers(size, **given), "Meta")
    rules.impl("randint.low_generator", lambda low, high, size, **given: _integers(size, **given), "Meta")
    KEPT.append(rules)


def _floats(size: Sequence[Any], *, dtype: torch.dtype | None = None, **given: Any) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def _integers(size: Sequence[Any], *, dtype: torch.dtype | None = None, **given: Any) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int64 if dtype is None else dtype, device="meta")
