"""Arithmetic on one, two and three tensors, element by element."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    c_function,
    const,
    constant_value,
    dtype_of,
    is_float,
    is_nan,
    is_tensor,
    larger,
    number,
    power,
    smaller,
    tirx,
)
from bridge.backends.tvm.kernels import binary, pointwise, scalar
from bridge.backends.tvm.table import Promote, converts

aten = torch.ops.aten


@converts(aten.add.Tensor, aten.add.Scalar, promote=Promote.DEFAULT, symbolic=True)
def add(x, other, alpha):
    other = scaled(other, alpha)
    if dtype_of(x) == "bool":
        return binary(R.logical_or, x, other)
    return binary(R.add, x, other)


@converts(aten.sub.Tensor, aten.sub.Scalar, promote=Promote.DEFAULT, symbolic=True)
def sub(x, other, alpha):
    return binary(R.subtract, x, scaled(other, alpha))


@converts(aten.rsub.Tensor, aten.rsub.Scalar, promote=Promote.DEFAULT, symbolic=True)
def rsub(x, other, alpha):
    return binary(R.subtract, other, scaled(x, alpha))


@converts(aten.mul.Tensor, aten.mul.Scalar, promote=Promote.DEFAULT, symbolic=True)
def mul(x, other):
    if dtype_of(x) == "bool":
        return binary(R.logical_and, x, other)
    return binary(R.multiply, x, other)


@converts(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
    promote=Promote.INT_TO_FLOAT,
    symbolic=True,
)
def div(x, other):
    return binary(R.divide, x, other)


def only_rounding_of_floats(x, other, rounding_mode):
    """True division of integers would need another rule of promotion."""
    if rounding_mode is None and not any(holds_floats(v) for v in (x, other)):
        return "rounding_mode=None of integers"
    return only_divisors_but_zero(x, other)


def only_divisors_but_zero(x, other):
    """Where an integer is divided by zero, torch raises. What is no constant the program looks at: `bounds.py`."""
    if isinstance(other, int) and isinstance(x, torch.Tensor) and not holds_floats(x):
        bits = 64 if x.dtype == torch.bool else torch.iinfo(x.dtype).bits
        return None if other % 2**bits else f"integers of {bits} bits divided by {other}, which is zero"


@converts(
    aten.div.Tensor_mode, aten.div.Scalar_mode, promote=Promote.DEFAULT, refuses=only_rounding_of_floats, symbolic=True
)
def div_mode(x, other, rounding_mode):
    if rounding_mode is None:
        return div(x, other)
    return floor_divide(x, other) if rounding_mode == "floor" else pointwise("trunc_divide", trunc_divided, x, other)


@converts(
    aten.floor_divide.default,
    aten.floor_divide.Scalar,
    promote=Promote.DEFAULT,
    refuses=only_divisors_but_zero,
    symbolic=True,
)
def floor_divide(x, other):
    return pointwise("floor_divide", floor_divided, x, other)


@converts(
    aten.remainder.Tensor,
    aten.remainder.Scalar,
    aten.remainder.Scalar_Tensor,
    promote=Promote.DEFAULT,
    refuses=only_divisors_but_zero,
    symbolic=True,
)
def remainder(x, other):
    """The result has the divisor's sign."""
    return pointwise("remainder", remainder_of, x, other)


@converts(
    aten.fmod.Tensor,
    aten.fmod.Scalar,
    promote=Promote.DEFAULT,
    refuses=only_divisors_but_zero,
    symbolic=True,
)
def fmod(x, other):
    """The result has the dividend's sign."""
    return pointwise("fmod", fmod_of, x, other)


@converts(aten.maximum.default, promote=Promote.DEFAULT, symbolic=True)
def maximum(x, other):
    return binary(R.logical_or, x, other) if dtype_of(x) == "bool" else pointwise("maximum", larger, x, other)


@converts(aten.minimum.default, promote=Promote.DEFAULT, symbolic=True)
def minimum(x, other):
    return binary(R.logical_and, x, other) if dtype_of(x) == "bool" else pointwise("minimum", smaller, x, other)


@converts(aten.fmax.default, promote=Promote.DEFAULT, symbolic=True)
def fmax(x, other):
    """A NaN loses against a number."""
    if dtype_of(x) == "bool":
        return binary(R.logical_or, x, other)
    return pointwise("fmax", lambda a, b: tirx.Select(tirx.Or(a >= b, is_nan(b)), a, b), x, other)


@converts(aten.fmin.default, promote=Promote.DEFAULT, symbolic=True)
def fmin(x, other):
    """A NaN loses against a number."""
    if dtype_of(x) == "bool":
        return binary(R.logical_and, x, other)
    return pointwise("fmin", lambda a, b: tirx.Select(tirx.Or(a <= b, is_nan(b)), a, b), x, other)


@converts(aten.clamp.default, aten.clamp.Tensor, promote=Promote.DEFAULT, symbolic=True)
def clamp(x, min, max):
    """Where min is above max, max wins."""
    bounds = [(larger, min), (smaller, max)]
    given = [(pick, bound) for pick, bound in bounds if bound is not None]

    def element(v, *limits):
        for (pick, _), limit in zip(given, limits, strict=True):
            v = pick(v, limit)
        return v

    return pointwise("clamp", element, x, *(bound for _, bound in given))


@converts(aten.clamp_min.default, aten.clamp_min.Tensor, promote=Promote.DEFAULT, symbolic=True)
def clamp_min(x, min):
    return maximum(x, min)


@converts(aten.clamp_max.default, aten.clamp_max.Tensor, promote=Promote.DEFAULT, symbolic=True)
def clamp_max(x, max):
    return minimum(x, max)


@converts(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar, promote=Promote.DEFAULT, symbolic=True)
def pow(x, exponent):
    """Small constant exponents are products and roots, as in torch."""
    known = constant_value(exponent)
    if known in SIMPLE_POWERS and (is_float(dtype_of(x)) or known in (2, 3)):
        return pointwise("pow", SIMPLE_POWERS[known], x)
    if not is_float(dtype_of(x)):
        return integer_power(x, exponent)
    return pointwise("pow", power, x, exponent)


@converts(aten.atan2.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def atan2(x, other):
    return pointwise("atan2", lambda a, b: c_function("atan2", a, b), x, other)


@converts(aten.hypot.default, promote=Promote.DEFAULT, symbolic=True)
def hypot(x, other):
    return pointwise("hypot", lambda a, b: c_function("hypot", a, b), x, other)


@converts(aten.copysign.Tensor, aten.copysign.Scalar, promote=Promote.INT_TO_FLOAT, symbolic=True)
def copysign(x, other):
    return pointwise("copysign", lambda a, b: c_function("copysign", a, b), x, other)


@converts(aten.logaddexp.default, promote=Promote.DEFAULT, symbolic=True)
def logaddexp(x, other):
    """Equal infinities stay as they are."""

    def element(a, b):
        top = larger(a, b)
        bottom = smaller(a, b)
        same = tirx.And(a == b, tirx.isinf(a))
        return tirx.Select(same, a, top + c_function("log1p", tirx.exp(bottom - top)))

    return pointwise("logaddexp", element, x, other)


@converts(aten.xlogy.Tensor, promote=Promote.INT_TO_FLOAT, symbolic=True)
def xlogy(x, other):
    """0 where x is 0, except for a NaN in the other."""

    def element(a, b):
        value = tirx.Select(a == number(0, a), number(0, a), a * tirx.log(b))
        return tirx.Select(is_nan(b), b, value)

    return pointwise("xlogy", element, x, other)


@converts(aten.lerp.Scalar, aten.lerp.Tensor, promote=Promote.DEFAULT, among=("self", "end"), symbolic=True)
def lerp(x, end, weight):
    """From the nearer end, as torch does."""

    def element(a, b, w):
        w = w.astype(a.ty.dtype)
        return tirx.Select(tirx.abs(w) < number(0.5, a), a + w * (b - a), b - (b - a) * (number(1, a) - w))

    return pointwise("lerp", element, x, end, weight if is_tensor(weight) else scalar(weight, dtype_of(x)))


@converts(aten.addcmul.default, promote=Promote.DEFAULT, symbolic=True)
def addcmul(x, tensor1, tensor2, value):
    if dtype_of(x) == "bool":
        return binary(R.logical_or, x, binary(R.logical_and, tensor1, tensor2))
    return pointwise("addcmul", lambda a, b, c, v: a + v * b * c, x, tensor1, tensor2, scalar(value, dtype_of(x)))


@converts(aten.addcdiv.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def addcdiv(x, tensor1, tensor2, value):
    return pointwise("addcdiv", lambda a, b, c, v: a + v * (b / c), x, tensor1, tensor2, scalar(value, dtype_of(x)))


def scaled(x: Expr, alpha) -> Expr:
    """alpha times x; x itself where alpha is 1."""
    if not is_tensor(alpha) and isinstance(alpha, (int, float)):
        if alpha == 1:
            return x
        known = constant_value(x)
        return mul(x, const(alpha, x)) if known is None else const(known * alpha, x)
    return mul(x, scalar(alpha, dtype_of(x)))


def holds_floats(value) -> bool:
    return value.is_floating_point() if isinstance(value, torch.Tensor) else isinstance(value, float)


def divided(by: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    """The quotient of integers. Processors end a process at a divisor of zero, and where -1 divides the least one."""
    if isinstance(b, tirx.IntImm):
        return by(a, b)
    quotient = by(a, harmless(b))
    return tirx.Select(b == number(-1, b), number(0, a) - a, quotient) if is_signed(b) else quotient


def remaining(by: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    """What remains of the division of integers."""
    return by(a, b if isinstance(b, tirx.IntImm) else harmless(b))


def harmless(divisor: Expr) -> Expr:
    """A divisor, but 1 in place of zero, which a check finds, and of -1, by which nothing remains."""
    bad = divisor == number(0, divisor)
    if is_signed(divisor):
        bad = tirx.Or(bad, divisor == number(-1, divisor))
    return tirx.Select(bad, number(1, divisor), divisor)


def is_signed(v: Expr) -> bool:
    return dtype_of(v).startswith("int")


def trunc_divided(a: Expr, b: Expr) -> Expr:
    return tirx.trunc(a / b) if is_float(a) else divided(tirx.truncdiv, a, b)


def floor_divided(a: Expr, b: Expr) -> Expr:
    """Python's rule, which torch takes for floats too: from the remainder, not from the rounded quotient."""
    if not is_float(a):
        return divided(tirx.floordiv, a, b)
    zero, one = number(0, a), number(1, a)
    rest = c_function("fmod", a, b)
    quotient = (a - rest) / b - tirx.Select(opposed(rest, b), one, zero)
    floor = tirx.floor(quotient)
    rounded = tirx.Select(quotient - floor > number(0.5, a), floor + one, floor)
    signed = tirx.Select(quotient == zero, c_function("copysign", zero, a / b), rounded)
    return tirx.Select(b == zero, a / b, signed)


def remainder_of(a: Expr, b: Expr) -> Expr:
    if not is_float(a):
        return remaining(tirx.floormod, a, b)
    rest = c_function("fmod", a, b)
    return tirx.Select(opposed(rest, b), rest + b, rest)


def opposed(a: Expr, b: Expr) -> Expr:
    """One is above zero and the other below."""
    zero = number(0, a)
    return tirx.Or(tirx.And(a < zero, b > zero), tirx.And(a > zero, b < zero))


def fmod_of(a: Expr, b: Expr) -> Expr:
    return c_function("fmod", a, b) if is_float(a) else remaining(tirx.truncmod, a, b)


def integer_power(base: Expr, exponent: Expr) -> Expr:
    """By squaring, a bit of the exponent at a time; higher bits than six leave only 0, 1 and overflow."""
    result, square = const(1, base), base
    for bit in range(6):
        result = pointwise("power_bit", times_if_bit(bit), result, square, exponent)
        square = binary(R.multiply, square, square)
    return pointwise("power_of_negative", unless_negative, result, base, exponent)


def times_if_bit(bit: int):
    def element(result, square, exponent):
        taken = tirx.bitwise_and(tirx.shift_right(exponent, number(bit, exponent)), number(1, exponent))
        return tirx.Select(taken != number(0, exponent), result * square, result)

    return element


def unless_negative(result: Expr, base: Expr, exponent: Expr) -> Expr:
    """A negative exponent gives 0, except of 1 and -1."""
    one, zero = number(1, base), number(0, base)
    if str(base.ty.dtype) == "uint8":
        return result
    odd = tirx.bitwise_and(exponent, one) != zero
    of_minus_one = tirx.Select(odd, base, one)
    negative = tirx.Select(base == one, one, tirx.Select(base == number(-1, base), of_minus_one, zero))
    return tirx.Select(exponent < zero, negative, result)


SIMPLE_POWERS = {
    0.5: tirx.sqrt,
    1: lambda v: v,
    2: lambda v: v * v,
    3: lambda v: v * v * v,
    -0.5: tirx.rsqrt,
    -1: lambda v: number(1, v) / v,
    -2: lambda v: number(1, v) / (v * v),
}
"""The exponents that torch's CPU kernels treat apart, and what they make of an element."""
