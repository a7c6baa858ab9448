"""Distances between vectors, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

import torch

from bridge.backends.tvm.compat import Expr, R, Size, dtype_of, extent, is_nan, number, power, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import compute, pointwise, reduction
from bridge.backends.tvm.ops.indexing import element_count
from bridge.backends.tvm.table import Accumulate, Promote, converts, present

aten = torch.ops.aten


@converts(aten.dist.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def dist(x, other, p):
    """The norm of all differences together."""
    difference = pointwise("difference", lambda a, b: a - b, x, other)
    count = element_count(shape_of(difference))
    flat = reshaped(difference, [count])
    return normed("dist", p, [], [count], lambda at, over, v: v(*over), flat)


@converts(aten._cdist_forward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def cdist(x1, x2, p, compute_mode, *, sizes):
    """From each row of one to each row of the other; by differences, whatever way of computing is asked for."""
    width = shape_of(x1)[-1]

    def element(at, over, a, b):
        return across(a, shape_of(x1), at[:-2], at[-2], over[0]) - across(b, shape_of(x2), at[:-2], at[-1], over[0])

    return normed("cdist", p, sizes, [width], element, x1, x2, nan=Nan.IGNORED if p == math.inf else Nan.SPREADS)


@converts(*present("aten._cdist_backward.default", having="grad_output"), accumulate=Accumulate.OPMATH)
def cdist_backward(grad_output, x1, x2, p, cdist, *, sizes):
    """The gradient of the first of the two. Where there is nothing to compare with, tensors are not broadcast."""
    if 0 in shape_of(grad_output):
        return R.zeros(sizes, dtype_of(x1))

    def element(at, over, g, a, b, d):
        *front, row, column = at
        difference = across(a, shape_of(x1), front, row, column) - across(b, shape_of(x2), front, over[0], column)
        return slope(p, difference, d(*front, row, over[0])) * g(*front, row, over[0])

    return reduction("cdist_backward", "sum", sizes, [shape_of(x2)[-2]], element, grad_output, x1, x2, cdist)


@converts(aten._pdist_forward.default, accumulate=Accumulate.OPMATH)
def pdist(x, p, *, sizes):
    """From each row to each one below it."""
    rows, width = shape_of(x)

    def element(at, over, a):
        first, second = pair_at(at[0], rows)
        return a(first, over[0]) - a(second, over[0])

    return normed("pdist", p, sizes, [width], element, x, nan=Nan.SPREADS)


@converts(*present("aten._pdist_backward.default", having="grad_output"), accumulate=Accumulate.OPMATH)
def pdist_backward(grad_output, x, p, pdist, *, sizes):
    rows = sizes[0]

    def element(at, over, g, a, d):
        row, column = at
        other = over[0]
        first, second = tirx.min(row, other), tirx.max(row, other)
        place = first * rows - tirx.floordiv(first * (first + 1), 2) + second - first - 1
        held = tirx.max(tirx.min(place, extent(max(rows * (rows - 1) // 2 - 1, 0))), extent(0))
        share = slope(p, a(row, column) - a(other, column), d(held)) * g(held)
        return tirx.Select(row.equal(other), number(0, share), share)

    if rows < 2:
        return compute("zeros", sizes, lambda at: number(0, dtype_of(x)))
    return reduction("pdist_backward", "sum", sizes, [rows], element, grad_output, x, pdist)


def pair_at(place: Expr, rows: int) -> tuple[Expr, Expr]:
    """The two rows of a pair, where the pairs of the first row come first."""
    back = extent(rows * (rows - 1) // 2 - 1) - place
    root = tirx.sqrt((back * 8 + 1).astype("float64"))
    level = tirx.floor((root - number(1, root)) / number(2, root)).astype("int64")
    level = tirx.Select(tirx.floordiv(level * (level + 1), 2) > back, level - 1, level)
    level = tirx.Select(tirx.floordiv((level + 1) * (level + 2), 2) <= back, level + 1, level)
    within = back - tirx.floordiv(level * (level + 1), 2)
    return extent(rows - 2) - level, extent(rows - 1) - within


def across(tensor, shape: list[Size], front, row, column) -> Expr:
    """An element of a matrix of several that are broadcast."""
    kept = [
        extent(0) if isinstance(n, int) and n == 1 else i for i, n in zip(front[len(front) - len(shape) + 2 :], shape)
    ]
    return tensor(*kept, row, column)


class Nan(Enum):
    """What a NaN among the elements does where the order of the norm alone would not say so.

    COUNTED: it is one that is not zero. SPREADS: the norm is a NaN too. IGNORED: the norm is that of the others.
    """

    COUNTED = "counted"
    SPREADS = "spreads"
    IGNORED = "ignored"


def normed(
    name: str, p: float, shape, over, element: Callable[..., Expr], *tensors: Expr, nan: Nan = Nan.COUNTED
) -> Expr:
    """The p-norm of what `element` gives over some positions; of p = 0 the number of those that are not zero."""
    how = "max" if p == math.inf else "sum"

    def term(at, positions, *inputs):
        v = tirx.abs(element(at, positions, *inputs))
        if nan is Nan.IGNORED:
            v = tirx.Select(is_nan(v), number(0, v), v)
        if p == 0:
            counted = tirx.Select(v == number(0, v), number(0, v), number(1, v))
            return tirx.Select(is_nan(v), v, counted) if nan is Nan.SPREADS else counted
        if p in (1, math.inf):
            return v
        return v * v if p == 2 else power(v, number(p, v))

    made = reduction(name, how, shape, over, term, *tensors)
    if p in (0, 1, math.inf):
        return made
    return pointwise("root", lambda v: tirx.sqrt(v) if p == 2 else power(v, number(1 / p, v)), made)


def slope(p: float, difference: Expr, distance: Expr) -> Expr:
    """By how much a distance grows with one of the differences that it is made of."""
    zero, one = number(0, difference), number(1, difference)
    level = tirx.Select(difference == zero, zero, difference)  # 0, or a NaN
    sign = tirx.Select(difference > zero, one, tirx.Select(difference < zero, zero - one, level))
    if p == 0:
        return zero
    if p == 1:
        return sign
    size = tirx.abs(difference)
    if p == math.inf:
        return tirx.Select(size == distance, sign, zero)
    if p == 2:
        return tirx.Select(distance == zero, zero, difference / distance)
    grown = sign * power(size, number(p - 1, size)) / power(distance, number(p - 1, size))
    return tirx.Select(tirx.Or(distance == zero, size == zero), zero, grown)
