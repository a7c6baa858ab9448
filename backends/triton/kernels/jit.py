"""What marks a function as Triton's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton


def jit(function: Callable[..., Any]) -> Any:
    """As `triton.jit`: a kernel, or what kernels call. Type checkers let it be called on what is known when it runs."""
    return triton.jit(function)
