"""Comparisons, logic and bits."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import R, dtype_of, is_tensor, number, tirx, unequal
from bridge.backends.tvm.kernels import binary, cast, pointwise, scalar
from bridge.backends.tvm.table import Promote, converts

aten = torch.ops.aten


@converts(aten.eq.Tensor, aten.eq.Scalar, promote=Promote.ALWAYS_BOOL, symbolic=True)
def eq(x, other):
    return binary(R.equal, *ordered(x, other))


@converts(aten.ne.Tensor, aten.ne.Scalar, promote=Promote.ALWAYS_BOOL, symbolic=True)
def ne(x, other):
    return pointwise("ne", unequal, x, other)


@converts(aten.lt.Tensor, aten.lt.Scalar, promote=Promote.ALWAYS_BOOL, symbolic=True)
def lt(x, other):
    return binary(R.less, *ordered(x, other))


@converts(aten.le.Tensor, aten.le.Scalar, promote=Promote.ALWAYS_BOOL, symbolic=True)
def le(x, other):
    return binary(R.less_equal, *ordered(x, other))


@converts(aten.gt.Tensor, aten.gt.Scalar, promote=Promote.ALWAYS_BOOL, symbolic=True)
def gt(x, other):
    return binary(R.greater, *ordered(x, other))


@converts(aten.ge.Tensor, aten.ge.Scalar, promote=Promote.ALWAYS_BOOL, symbolic=True)
def ge(x, other):
    return binary(R.greater_equal, *ordered(x, other))


@converts(aten.logical_and.default, symbolic=True)
def logical_and(x, other):
    return binary(R.logical_and, cast(x, "bool"), cast(other, "bool"))


@converts(aten.logical_or.default, symbolic=True)
def logical_or(x, other):
    return binary(R.logical_or, cast(x, "bool"), cast(other, "bool"))


@converts(aten.logical_xor.default, symbolic=True)
def logical_xor(x, other):
    return pointwise("logical_xor", unequal, cast(x, "bool"), cast(other, "bool"))


@converts(aten.logical_not.default, symbolic=True)
def logical_not(x):
    """Of bools by way of integers: TVM takes `not a < b` for `a >= b`, which a NaN is not."""
    x = cast(x, "int8") if dtype_of(x) == "bool" else x
    return pointwise("logical_not", lambda v: v == number(0, v), x)


@converts(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, promote=Promote.DEFAULT, symbolic=True)
def bitwise_and(x, other):
    return binary(R.logical_and, x, other) if dtype_of(x) == "bool" else binary(R.bitwise_and, x, other)


@converts(aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, promote=Promote.DEFAULT, symbolic=True)
def bitwise_or(x, other):
    return binary(R.logical_or, x, other) if dtype_of(x) == "bool" else binary(R.bitwise_or, x, other)


@converts(aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, promote=Promote.DEFAULT, symbolic=True)
def bitwise_xor(x, other):
    return pointwise("bitwise_xor", unequal, x, other) if dtype_of(x) == "bool" else binary(R.bitwise_xor, x, other)


@converts(aten.bitwise_not.default, symbolic=True)
def bitwise_not(x):
    return logical_not(x) if dtype_of(x) == "bool" else R.bitwise_not(x)


@converts(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar, promote=Promote.DEFAULT, symbolic=True)
def bitwise_left_shift(x, other):
    """A shift by the width or more, or by less than 0, gives 0."""

    def element(v, by):
        bits = v.ty.dtype.bits
        inside = tirx.And(by >= number(0, by), by < number(bits, by))
        return tirx.Select(inside, tirx.shift_left(v, tirx.Select(inside, by, number(0, by))), number(0, v))

    return pointwise("bitwise_left_shift", element, x, other)


@converts(
    aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar, promote=Promote.DEFAULT, symbolic=True
)
def bitwise_right_shift(x, other):
    """A shift by the width or more, or by less than 0, leaves only the sign."""

    def element(v, by):
        last = v.ty.dtype.bits - 1
        inside = tirx.And(by >= number(0, by), by <= number(last, by))
        return tirx.shift_right(v, tirx.Select(inside, by, number(last, by)))

    return pointwise("bitwise_right_shift", element, x, other)


@converts(
    aten.where.self,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
    aten.where.Scalar,
    promote=Promote.NO_OPMATH,
    among=("self", "other"),
    symbolic=True,
)
def where(condition, x, other):
    return pointwise("where", tirx.Select, cast(condition, "bool"), x, other)


@converts(aten.masked_fill.Scalar, aten.masked_fill.Tensor, symbolic=True)
def masked_fill(x, mask, value):
    value = cast(value, dtype_of(x)) if is_tensor(value) else scalar(value, dtype_of(x))
    return pointwise("masked_fill", lambda m, v, new: tirx.Select(m, new, v), mask, x, value)


def ordered(x, other):
    """False and True as 0 and 1, which have an order."""
    return (cast(x, "int8"), cast(other, "int8")) if dtype_of(x) == "bool" else (x, other)
