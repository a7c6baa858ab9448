"""Modified Bessel functions of the first kind, by Chebyshev series that are fitted when this file is imported."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from bridge.backends.tvm.compat import Expr, dtype_of, number, shape_of, tirx
from bridge.backends.tvm.kernels import loops, nest, pointwise, store
from bridge.backends.tvm.ops.scatter import element_of
from bridge.backends.tvm.table import Promote, converts

aten = torch.ops.aten

NEAR = 8.0
"""Up to here a function is fitted over its argument, beyond over the reciprocal of it."""

TERMS = 30


@converts(aten.i0.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def i0(x):
    return pointwise("i0", lambda v, s: tirx.exp(tirx.abs(v)) * s, x, special_i0e(x))


@converts(aten.special_i0e.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def special_i0e(x):
    """i0 without its growth."""
    return pointwise("i0e", lambda v, near, far: tirx.Select(is_near(v), near, far / root(v)), x, *fitted(x, 0))


@converts(aten.special_i1.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def special_i1(x):
    return pointwise("i1", lambda v, s: tirx.exp(tirx.abs(v)) * s, x, special_i1e(x))


@converts(aten.special_i1e.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def special_i1e(x):
    """i1 without its growth; it has the sign of its argument."""

    def element(v, near, far):
        beyond = far / root(v)
        return tirx.Select(is_near(v), near * v, tirx.Select(v < number(0, v), beyond * number(-1, v), beyond))

    return pointwise("i1e", element, x, *fitted(x, 1))


def is_near(v: Expr) -> Expr:
    return tirx.abs(v) <= number(NEAR, v)


def root(v: Expr) -> Expr:
    return tirx.sqrt(tirx.abs(v))


def fitted(x: Expr, order: int) -> tuple[Expr, Expr]:
    """The two series at x: each is right on its own side of `NEAR`, and something finite on the other."""

    def near(v):
        return tirx.min(tirx.abs(v), number(NEAR, v)) * number(2 / NEAR, v) - number(1, v)

    def far(v):
        return number(2 * NEAR, v) / tirx.max(tirx.abs(v), number(NEAR, v)) - number(1, v)

    positions = (pointwise("near", near, x), pointwise("far", far, x))
    made = [chebyshev(t, table) for t, table in zip(positions, SERIES[order], strict=True)]
    return made[0], made[1]


def chebyshev(t: Expr, coefficients: Sequence[float]) -> Expr:
    """The sum of the coefficients times the Chebyshev polynomials at t, by Clenshaw's recurrence."""
    shape, name = shape_of(t), dtype_of(t)

    def body(out, last, v):
        def at(place):
            for i in range(2):
                store(last, [i], number(0, name))
            for coefficient in reversed(coefficients[1:]):
                step = number(2, name) * element_of(v, place) * last[0] - last[1] + number(coefficient, name)
                store(last, [2], step)
                store(last, [1], last[0])
                store(last, [0], last[2])
            store(out, place, element_of(v, place) * last[0] - last[1] + number(coefficients[0], name))

        nest(shape, at)

    return loops("chebyshev", [(shape, name), ([3], name)], body, t)[0]


def without_growth(order: int, x: numpy.ndarray) -> numpy.ndarray:
    """exp(-x) times the function: the mean of exp(x (cos θ - 1)) cos(order θ) over a circle, for x above 0."""
    angles = numpy.linspace(0, math.pi, 4097)
    values = numpy.exp(x[:, None] * (numpy.cos(angles) - 1)) * numpy.cos(order * angles)
    values[:, [0, -1]] /= 2
    return values.sum(axis=1) / (len(angles) - 1)


def fit(function: Callable[[Any], Any]) -> list[float]:
    """The coefficients of the Chebyshev series of a function on [-1, 1]."""
    return numpy.polynomial.chebyshev.chebinterpolate(function, TERMS - 1).tolist()


SERIES = tuple(
    (
        fit(lambda t, order=order: without_growth(order, x := NEAR * (t + 1) / 2) / x**order),
        fit(lambda t, order=order: without_growth(order, x := 2 * NEAR / (t + 1)) * numpy.sqrt(x)),
    )
    for order in (0, 1)
)
