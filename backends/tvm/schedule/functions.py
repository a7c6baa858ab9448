"""Functions of float32 that TVM would call the C library for, once for each lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

FUNCTIONS: Mapping[str, Callable[..., Any]] = {}
