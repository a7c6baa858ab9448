"""Numbers and operations of one element, or of several in lanes, as TVM's expressions."""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from bridge.backends.tvm.scalar import Operation
from bridge.backends.tvm.schedule.functions import written
from bridge.backends.tvm.schedule.integers import (
    WRAPS,
    cast,
    floor_division,
    floor_remainder,
    lanes_of,
    typed,
    wrapped,
)


def constant(value: Any, dtype: str) -> Any:
    """A number as an expression."""
    if dtype == "handle":
        return ir.StringImm(value)
    if dtype.startswith(("float", "bfloat")):
        return tirx.FloatImm(dtype, float(value))
    return tirx.IntImm(dtype, int(value))


def operation(node: Operation, arguments: list[Any], bind: Callable[[Any], Any]) -> Any:
    """An operation on expressions of equal width."""
    width = max(lanes_of(a) for a in arguments)
    if node.name == "Cast":
        return cast(arguments[0], node.dtype)
    if node.name == "Select":
        return tirx.Select(*arguments)
    own = written(node.name, node.dtype, arguments, bind)
    if own is not None:
        return own
    if node.dtype in WRAPS and node.name in ("Add", "Sub", "Mul"):
        return wrapped(node.name, *arguments)
    if node.name in ("FloorDiv", "FloorMod") and node.dtype.startswith(("int", "uint")):
        divide = floor_division if node.name == "FloorDiv" else floor_remainder
        return divide(*(bind(a) if width > 1 else a for a in arguments))
    if "." in node.name:
        return ir.Call(ir.Op.get(node.name), arguments, ret_ty=typed(node.dtype, width))
    return getattr(tirx, node.name)(*arguments)
