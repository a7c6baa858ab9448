"""Special functions, by C's mathematical library or by series."""

from __future__ import annotations

import math

import torch

from bridge.backends.tvm.compat import Expr, R, c_function, dtype_of, is_float, is_nan, number, power, tirx
from bridge.backends.tvm.kernels import binary, pointwise, scalar
from bridge.backends.tvm.table import Promote, converts

aten = torch.ops.aten

SHIFT = 10
"""From here on the series of digamma is exact to float64."""

SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""The coefficients of 1/x², 1/x⁴, … in the asymptotic series of digamma."""


@converts(aten.erfc.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def erfc(x):
    return pointwise("erfc", lambda v: c_function("erfc", v), x)


@converts(aten.lgamma.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def lgamma(x):
    return pointwise("lgamma", lambda v: c_function("lgamma", v), x)


@converts(aten.digamma.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def digamma(x):
    """Below zero by reflection; at zero minus its sign's infinity, at negative integers NaN."""
    above = pointwise("above", lambda v: tirx.Select(v < number(0, v), number(1, v) - v, v), x)
    above, moved = moved_up(above)
    return pointwise("digamma", reflected, x, pointwise("digamma_series", series, above, moved))


@converts(aten.ldexp.Tensor, promote=Promote.INT_TO_FLOAT, symbolic=True)
def ldexp(x, other):
    return pointwise("ldexp", lambda v, n: v * power(number(2, v), n), x, other)


@converts(aten.nextafter.default, promote=Promote.NO_OPMATH, symbolic=True)
def nextafter(x, other):
    return pointwise("nextafter", lambda a, b: c_function("nextafter", a, b), x, other)


@converts(aten.round.decimals, promote=Promote.DEFAULT, symbolic=True)
def round_decimals(x, decimals):
    """Half to even, in units of ten to the power of minus `decimals`."""
    if not is_float(dtype_of(x)):
        return x
    tens = scalar(10.0 ** abs(decimals), dtype_of(x))
    if decimals < 0:
        return binary(R.multiply, pointwise("round", lambda v, t: tirx.nearbyint(v / t), x, tens), tens)
    return pointwise("round", lambda v, t: tirx.nearbyint(v * t) / t, x, tens)


@converts(aten.angle.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def angle(x):
    def element(v):
        turned = tirx.Select(v < number(0, v), number(math.pi, v), number(0, v))
        return tirx.Select(is_nan(v), v, turned)

    return pointwise("angle", element, x)


def moved_up(x: Expr) -> tuple[Expr, Expr]:
    """x ≥ 0 moved up by ones until the series holds, and what that adds to digamma. A kernel for each step."""
    moved = R.zeros_like(x)
    for _ in range(SHIFT):
        moved = pointwise("digamma_step", lambda m, v: tirx.Select(is_near(v), m - number(1, v) / v, m), moved, x)
        x = pointwise("digamma_up", lambda v: tirx.Select(is_near(v), v + number(1, v), v), x)
    return x, moved


def is_near(v: Expr) -> Expr:
    return v < number(SHIFT, v)


def series(v: Expr, moved: Expr) -> Expr:
    square = number(1, v) / (v * v)
    tail = number(0, v)
    for coefficient in reversed(SERIES):
        tail = (tail + number(coefficient, v)) * square
    return moved + tirx.log(v) - number(0.5, v) / v - tail


def reflected(v: Expr, beyond: Expr) -> Expr:
    """digamma of v from that of v, or of 1 - v where v is below zero."""
    zero, pi = number(0, v), number(math.pi, v)
    below = v < zero
    turn = pi / tirx.tan(pi * (v - tirx.trunc(v)))
    value = tirx.Select(below, beyond - turn, beyond)
    value = tirx.Select(tirx.And(below, v == tirx.floor(v)), number(math.nan, v), value)
    return tirx.Select(v == zero, c_function("copysign", number(math.inf, v), v * number(-1, v)), value)
