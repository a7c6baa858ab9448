"""PrimFuncs that are run as they are: TVM's default order of loops, but arguments that may begin anywhere."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from bridge.backends.tvm.codegen import plain_loops
from bridge.backends.tvm.schedule.vector import width


def scheduled_opaque(function: Any) -> Any:
    """The function as loops, its parameters aligned to their elements only."""
    function = plain_loops(function)
    return function
