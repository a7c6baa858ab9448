"""Arithmetic of integers in lanes, by torch's rules, and the types of expressions in lanes."""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

WRAPS = ("int32",)
"""Types of which LLVM is told that they do not overflow, and that a wider one holds. In torch they wrap around."""


def wrapped(name: str, a: Any, b: Any) -> Any:
    """A sum, a difference or a product of 32-bit integers that wraps around: the low half of it in 64 bits."""
    return cast(getattr(tirx, name)(cast(a, "int64"), cast(b, "int64")), "int32")


def floor_division(a: Any, b: Any) -> Any:
    """floor(a / b) of integers. TVM's own is written with a branch, which lanes cannot take."""
    if lanes_of(a) == 1:
        return tirx.FloorDiv(a, b)
    quotient = tirx.Div(a, b)
    rest = a - quotient * b
    zero, one = (tirx.Broadcast(tirx.IntImm(str(a.ty.dtype).split("x")[0], v), lanes_of(a)) for v in (0, 1))
    away = tirx.Or(tirx.And(rest < zero, b > zero), tirx.And(rest > zero, b < zero))
    return quotient - tirx.Select(away, one, zero)


def floor_remainder(a: Any, b: Any) -> Any:
    """a - b * floor(a / b) of integers."""
    return tirx.FloorMod(a, b) if lanes_of(a) == 1 else a - floor_division(a, b) * b


def lanes_of(expr: Any) -> int:
    """How many elements an expression holds. The name of a C function holds none, and is as good as one."""
    if isinstance(expr, ir.StringImm):
        return 1
    text = str(expr.ty.dtype)
    return int(text.rsplit("x", 1)[1]) if "x" in text else 1


def typed(dtype: str, lanes: int) -> str:
    """TVM's name of a type in lanes."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def cast(expr: Any, dtype: str) -> Any:
    """The expression in another element type."""
    wanted = typed(dtype, lanes_of(expr))
    return expr if str(expr.ty.dtype) == wanted else tirx.Cast(wanted, expr)
