"""Special functions, by C's mathematical library or by series."""

from __future__ import annotations

import math

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    T,
    broadcast_shape,
    c_function,
    dtype_of,
    is_float,
    is_nan,
    number,
    power,
    reshaped,
    shape_of,
    tirx,
)
from bridge.backends.tvm.kernels import binary, broadcast_index, loops, nest, pointwise, scalar, store
from bridge.backends.tvm.ops.scatter import element_of
from bridge.backends.tvm.table import Promote, converts

aten = torch.ops.aten

SHIFT = 10
"""From here on the series of digamma is exact to float64."""

SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""The coefficients of 1/x², 1/x⁴, … in the asymptotic series of digamma."""

TRIGAMMA_STEPS = 6

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
"""B2, B4, …"""


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


@converts(aten.special_zeta.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def special_zeta(x, other):
    """Hurwitz' zeta function."""
    return zeta(x, other)


@converts(aten.polygamma.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def polygamma(n, x):
    """The n-th derivative of digamma."""
    if n == 0:
        return digamma(x)
    if n == 1:
        return trigamma(x)
    order = scalar(n + 1, dtype_of(x))
    sign = math.factorial(n) * (1 if n % 2 else -1)
    return pointwise("polygamma", lambda v, z: number(sign, v) * z, x, zeta(order, x))


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


def trigamma(x: Expr) -> Expr:
    """By reflection below a half; some steps, then the asymptotic series."""
    above = pointwise("above", lambda v: tirx.Select(v < number(0.5, v), number(1, v) - v, v), x)

    def summed(v):
        steps = number(0, v)
        for k in range(TRIGAMMA_STEPS):
            steps = steps + number(1, v) / ((v + number(k, v)) * (v + number(k, v)))
        far = v + number(TRIGAMMA_STEPS, v)
        square = number(1, v) / (far * far)
        tail = number(1 / 30, v) - square * number(1 / 42, v)
        tail = number(1 / 6, v) - square * tail
        return steps + (number(1, v) + number(0.5, v) / far + square * tail) / far

    def element(v, beyond):
        sine = tirx.sin(number(math.pi, v) * v)
        return tirx.Select(v < number(0.5, v), number(math.pi**2, v) / (sine * sine) - beyond, beyond)

    return pointwise("trigamma", element, x, pointwise("trigamma_series", summed, above))


def zeta(s: Expr, q: Expr) -> Expr:
    """The sum of (q + k)^-s: by steps until q is large, then by Euler and Maclaurin.

    Infinite where q is 0 or a negative integer; NaN for other q below 0 if s is no integer, or if s is below 1.
    """
    shape, name = broadcast_shape(shape_of(s), shape_of(q)), dtype_of(q)
    if not shape:
        return reshaped(zeta(reshaped(s, [1]), reshaped(q, [1])), [])

    def body(out, kept, exponents, starts):
        def at(place):
            exponent = element_of(exponents, broadcast_index(place, shape_of(s)))
            start = element_of(starts, broadcast_index(place, shape_of(q)))
            few = tirx.And(start > number(-(2.0**31), name), start < number(SHIFT, name))
            store(kept, [0], number(0, name))
            store(kept, [1], start)
            steps = tirx.if_then_else(few, tirx.ceil(number(SHIFT, name) - start), number(0, name)).astype("int64")
            with T.serial(0, steps):
                store(kept, [0], kept[0] + power(kept[1], number(0, name) - exponent))
                store(kept, [1], kept[1] + number(1, name))
            store(out, place, zeta_of(exponent, start, kept[0], kept[1]))

        nest(shape, at)

    return loops("zeta", [(shape, name), ([2], name)], body, s, q)[0]


def zeta_of(s: Expr, q: Expr, begun: Expr, a: Expr) -> Expr:
    """Zeta of s at q, of which the terms before a are summed."""
    one, half = number(1, s), number(0.5, s)
    last = power(a, number(0, s) - s)
    tail, factor = last * a / (s - one) + last * half, s * last / a
    for k, bernoulli in enumerate(BERNOULLI, start=1):
        tail = tail + factor * number(bernoulli / math.factorial(2 * k), s)
        factor = factor * (s + number(2 * k - 1, s)) * (s + number(2 * k, s)) / (a * a)
    nan, inf = number(math.nan, s), number(math.inf, s)
    below = tirx.Select(q == tirx.floor(q), inf, tirx.Select(s == tirx.floor(s), begun + tail, nan))
    value = tirx.Select(q <= number(0, q), below, begun + tail)
    value = tirx.Select(s < one, nan, tirx.Select(s == one, inf, value))
    return tirx.Select(tirx.Or(is_nan(s), is_nan(q)), nan, value)


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
