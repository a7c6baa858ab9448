"""Inverses and relatives of the error function. All in float64: their tails hang on the last digits."""

from __future__ import annotations

import math

import torch

from bridge.backends.tvm.compat import Expr, c_function, is_nan, number, tirx
from bridge.backends.tvm.kernels import cast, pointwise
from bridge.backends.tvm.table import Promote, converts

aten = torch.ops.aten

FAR = 26.0
"""From here on exp(x²) erfc(x) is summed as its asymptotic series; before, neither factor leaves float64."""

TAIL = (1, -1 / 2, 3 / 4, -15 / 8, 105 / 16, -945 / 32)
"""The coefficients of x^-2k in √π x exp(x²) erfc(x) for large x."""

STEPS = 4
"""Newton's steps to an inverse; each doubles the digits, and the first guess has two."""


@converts(aten.special_erfcx.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def erfcx(x):
    def element(v):
        near = tirx.exp(v * v) * c_function("erfc", v)
        square, tail = number(1, v) / (v * v), number(0, v)
        for coefficient in reversed(TAIL):
            tail = tail * square + number(coefficient, v)
        far = tail / (v * number(math.sqrt(math.pi), v))
        return tirx.Select(v < number(FAR, v), near, far)

    return pointwise("erfcx", element, cast(x, "float64"))


@converts(aten.erfinv.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def erfinv(x):
    x = cast(x, "float64")
    rest = pointwise("rest", lambda v: number(1, v) - tirx.abs(v), x)
    return inverse(x, rest)


@converts(aten.special_ndtri.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def ndtri(x):
    """The quantiles of the normal distribution."""
    x = cast(x, "float64")
    signed = pointwise("signed", lambda p: p * number(2, p) - number(1, p), x)
    rest = pointwise("rest", lambda p: number(2, p) * tirx.Select(p < number(0.5, p), p, number(1, p) - p), x)
    return pointwise("ndtri", lambda z: z * number(math.sqrt(2), z), inverse(signed, rest))


def inverse(y: Expr, rest: Expr) -> Expr:
    """Where erf is y; `rest` is 1 - |y|, which near the ends has digits that y has not."""
    z = pointwise("guess", guessed, rest)
    for _ in range(STEPS):
        z = pointwise("newton", improved, z, y, rest)
    return pointwise("erfinv", with_ends, z, y, rest)


def guessed(rest: Expr) -> Expr:
    """Winitzki's approximation, right to a few thousandths."""
    bend = 0.147
    log = tirx.log(rest * (number(2, rest) - rest))
    middle = number(2 / (math.pi * bend), rest) + log * number(0.5, rest)
    return tirx.sqrt(tirx.sqrt(middle * middle - log * number(1 / bend, rest)) - middle)


def improved(z: Expr, y: Expr, rest: Expr) -> Expr:
    """A step of Newton's: of erf in the middle, of the logarithm of erfc in the tail, which is nearly a parabola."""
    slope = tirx.exp(z * z) * number(math.sqrt(math.pi) / 2, z)
    left = c_function("erfc", z)
    middle = z - (c_function("erf", z) - tirx.abs(y)) * slope
    tail = z + (tirx.log(left) - tirx.log(rest)) * left * slope
    return tirx.Select(rest > number(0.5, z), middle, tail)


def with_ends(z: Expr, y: Expr, rest: Expr) -> Expr:
    """Infinite at -1 and 1, NaN beyond them."""
    value = tirx.Select(rest == number(0, z), number(math.inf, z), z)
    value = tirx.Select(tirx.Or(rest < number(0, z), is_nan(y)), number(math.nan, z), value)
    return tirx.Select(y == number(0, z), y, c_function("copysign", value, y))
