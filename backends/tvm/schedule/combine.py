"""How two partial results of a reduction become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx

from bridge.backends.tvm.schedule.elements import constant
from bridge.backends.tvm.schedule.integers import WRAPS, lanes_of, typed, wrapped

NEUTRAL: Mapping[str, float] = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf"), "any": 0, "all": 1}


def neutral_of(combine: str, dtype: str) -> Any:
    """What changes nothing when it is taken in."""
    value = NEUTRAL[combine]
    if dtype.startswith(("float", "bfloat")):
        return constant(value, dtype)
    if combine == "max":
        return tirx.min_value(dtype)
    if combine == "min":
        return tirx.max_value(dtype)
    return constant(value, dtype)


def combined(how: str, a: Any, b: Any) -> Any:
    """Two partial results as one. As in torch, a NaN is the largest and the smallest number."""
    if how in ("sum", "prod"):
        name = "Add" if how == "sum" else "Mul"
        whole = str(a.ty.dtype).split("x")[0] in WRAPS
        return wrapped(name, a, b) if whole else getattr(tirx, name)(a, b)
    if how == "any":
        return tirx.Or(a, b)
    if how == "all":
        return tirx.And(a, b)
    better = tirx.GT(b, a) if how == "max" else tirx.LT(b, a)
    if "float" in str(a.ty.dtype):
        better = tirx.Or(better, is_nan(b))
    return tirx.Select(better, b, a)


def is_nan(x: Any) -> Any:
    """TVM compares floats ordered, so `x != x` is false for a NaN."""
    return ir.Call(ir.Op.get("tirx.isnan"), [x], ret_ty=typed("bool", lanes_of(x)))
