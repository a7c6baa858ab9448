"""Functions of one element."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    c_function,
    converted,
    dtype_of,
    infinity,
    is_float,
    is_nan,
    number,
    tirx,
    torch_dtype,
    wide,
)
from bridge.backends.tvm.kernels import binary, pointwise
from bridge.backends.tvm.table import Promote, converts

aten = torch.ops.aten

converts(aten.exp.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.exp)
converts(aten.log.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.log)
converts(aten.sin.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.sin)
converts(aten.cos.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.cos)
converts(aten.tan.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.tan)
converts(aten.tanh.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.tanh)
converts(aten.erf.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.erf)
converts(aten.sqrt.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.sqrt)
converts(aten.rsqrt.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.rsqrt)
converts(aten.sigmoid.default, promote=Promote.INT_TO_FLOAT, symbolic=True)(R.sigmoid)


@converts(aten.asin.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def asin(x):
    return by_library("asin", x)


@converts(aten.acos.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def acos(x):
    return by_library("acos", x)


@converts(aten.atan.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def atan(x):
    return by_library("atan", x)


@converts(aten.sinh.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def sinh(x):
    return by_library("sinh", x)


@converts(aten.cosh.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def cosh(x):
    return by_library("cosh", x)


@converts(aten.asinh.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def asinh(x):
    return by_library("asinh", x)


@converts(aten.acosh.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def acosh(x):
    return by_library("acosh", x)


@converts(aten.atanh.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def atanh(x):
    return by_library("atanh", x)


@converts(aten.log1p.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def log1p(x):
    return by_library("log1p", x)


@converts(aten.log2.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def log2(x):
    return pointwise("log2", tirx.log2, x)


@converts(aten.log10.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def log10(x):
    return pointwise("log10", tirx.log10, x)


@converts(aten.exp2.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def exp2(x):
    return pointwise("exp2", tirx.exp2, x)


@converts(aten.expm1.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def expm1(x):
    return pointwise("expm1", exp_minus_one, x)


@converts(aten.reciprocal.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def reciprocal(x):
    return pointwise("reciprocal", lambda v: number(1, v) / v, x)


@converts(aten.square.default, promote=Promote.DEFAULT, symbolic=True)
def square(x):
    return binary(R.multiply, x, x)


@converts(aten.neg.default, promote=Promote.DEFAULT, symbolic=True)
def neg(x):
    if dtype_of(x) == "uint8":
        return pointwise("neg", lambda v: number(0, v) - v, x)
    return pointwise("neg", lambda v: v * number(-1, v), x)


@converts(aten.abs.default, promote=Promote.DEFAULT, symbolic=True)
def abs(x):
    return x if dtype_of(x) in ("bool", "uint8") else pointwise("abs", tirx.abs, x)


@converts(aten.sign.default, aten.sgn.default, promote=Promote.DEFAULT, symbolic=True)
def sign(x):
    """0 for a NaN, as torch has it."""
    if dtype_of(x) == "bool":
        return x

    def element(v):
        zero, one = number(0, v), number(1, v)
        if str(v.ty.dtype) == "uint8":
            return tirx.Select(v > zero, one, zero)
        return tirx.Select(v > zero, one, tirx.Select(v < zero, number(-1, v), zero))

    return pointwise("sign", element, x)


@converts(aten.signbit.default, symbolic=True)
def signbit(x):
    """Of -0 and of a NaN with the sign too."""
    name = dtype_of(x)
    if name in ("bool", "uint8"):
        return pointwise("signbit", lambda v: number(False, "bool"), x)

    def element(v):
        if not is_float(v):
            return v < number(0, v)
        one = number(1, wide(v))
        return c_function("copysign", one, wide(v)) < number(0, one)

    return pointwise("signbit", element, x)


@converts(aten.floor.default, promote=Promote.DEFAULT, symbolic=True)
def floor(x):
    return rounded(tirx.floor, x)


@converts(aten.ceil.default, promote=Promote.DEFAULT, symbolic=True)
def ceil(x):
    return rounded(tirx.ceil, x)


@converts(aten.trunc.default, promote=Promote.DEFAULT, symbolic=True)
def trunc(x):
    return rounded(tirx.trunc, x)


@converts(aten.round.default, promote=Promote.DEFAULT, symbolic=True)
def round(x):
    """Half to even."""
    return rounded(tirx.nearbyint, x)


@converts(aten.frac.default, promote=Promote.DEFAULT, symbolic=True)
def frac(x):
    return pointwise("frac", lambda v: v - tirx.trunc(v), x)


@converts(aten.isnan.default, symbolic=True)
def isnan(x):
    return pointwise("isnan", is_nan, x)


@converts(aten.isinf.default, symbolic=True)
def isinf(x):
    return pointwise("isinf", lambda v: is_infinite(v) if is_float(v) else number(False, "bool"), x)


@converts(aten.isfinite.default, symbolic=True)
def isfinite(x):
    def element(v):
        return tirx.abs(wide(v)) < infinity(wide(v)) if is_float(v) else number(True, "bool")

    return pointwise("isfinite", element, x)


@converts(aten.nan_to_num.default, symbolic=True)
def nan_to_num(x, nan, posinf, neginf):
    """Without a value an infinity becomes the largest number of the type."""
    name = dtype_of(x)
    if not name.startswith(("float", "bfloat")):
        return x
    limits = torch.finfo(getattr(torch, name))
    top = limits.max if posinf is None else posinf
    bottom = limits.min if neginf is None else neginf

    def element(v):
        w = wide(v)
        w = tirx.Select(w == infinity(w), number(top, w), tirx.Select(w == -infinity(w), number(bottom, w), w))
        return converted(tirx.Select(is_nan(v), number(nan or 0.0, w), w), name)

    return pointwise("nan_to_num", element, x)


def only_whole_words(x):
    """In the bits of 16-bit floats ATen reads otherwise."""
    if x.dtype not in BITS_OF:
        return f"{x.dtype} is not supported"


BITS_OF = {torch.float32: ("int32", 23, 8), torch.float64: ("int64", 52, 11)}
"""The integer as wide as a float, and of how many bits its fraction and its exponent are."""


@converts(aten.frexp.Tensor, refuses=only_whole_words, symbolic=True)
def frexp(x):
    """A number of at least 1/2 and below 1, and the power of two that it is multiplied by, out of the bits."""
    name = dtype_of(x)
    integer, fraction, exponent = BITS_OF[torch_dtype(name)]
    bias, top = 2 ** (exponent - 1) - 2, 2**exponent - 1

    def normal(v):
        """A denormal number times a power of two that makes it normal."""
        return tirx.Select(
            tirx.abs(v) < number(torch.finfo(torch_dtype(name)).tiny, v), v * number(2.0**fraction, v), v
        )

    def field(v):
        bits = tirx.reinterpret(integer, normal(v))
        return tirx.bitwise_and(tirx.shift_right(bits, tirx.const(fraction, integer)), tirx.const(top, integer))

    def stays(v):
        return tirx.Or(v == number(0, v), field(v).equal(tirx.const(top, integer)))

    def mantissa(v):
        bits = tirx.reinterpret(integer, normal(v))
        kept = tirx.bitwise_and(bits, tirx.const(~(top << fraction), integer))
        made = tirx.reinterpret(name, tirx.bitwise_or(kept, tirx.const(bias << fraction, integer)))
        return tirx.Select(stays(v), v, made)

    def power(v):
        shifted = tirx.Select(normal(v) == v, tirx.const(0, integer), tirx.const(fraction, integer))
        made = field(v) - shifted - tirx.const(bias, integer)
        return tirx.Select(stays(v), tirx.const(0, integer), made).astype("int32")

    return pointwise("mantissa", mantissa, x), pointwise("exponent", power, x)


def by_library(name: str, x: Expr) -> Expr:
    """By C's function of that name: TVM's own loses small values, or can only be called on single elements."""
    return pointwise(name, lambda v: c_function(name, v), x)


def rounded(how, x: Expr) -> Expr:
    return pointwise(how.__name__, how, x) if dtype_of(x).startswith(("float", "bfloat")) else x


def is_infinite(v: Expr) -> Expr:
    return tirx.abs(wide(v)) == infinity(wide(v))


def exp_minus_one(v: Expr) -> Expr:
    """Kahan's correction of exp(v) - 1, right to a few units in the last place."""
    one = number(1, v)
    power = tirx.exp(v)
    corrected = (power - one) * v / tirx.log(power)
    outside = tirx.Select(tirx.abs(v) > number(30, v), power - one, corrected)
    return tirx.Select(power == one, v, outside)
