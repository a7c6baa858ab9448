"""Sums, extremes and moments over dimensions."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    Size,
    const,
    converted,
    dtype_of,
    infinity,
    is_nan,
    is_true,
    larger,
    number,
    power,
    reshaped,
    shape_of,
    size_product,
    tirx,
)
from bridge.backends.tvm.kernels import cast, pointwise, reduced
from bridge.backends.tvm.table import Accumulate, converts
from bridge.ir.shapes import positives

aten = torch.ops.aten


@converts(aten.sum.dim_IntList, accumulate=Accumulate.RESULT, symbolic=True)
def sum_(x, dim, keepdim, dtype):
    """Small integers are summed in int64; an empty dim means every dim."""
    return total(x, dim, keepdim)


@converts(aten.sum.default, accumulate=Accumulate.RESULT, symbolic=True)
def sum_all(x, dtype):
    return total(x, None, False)


@converts(aten.mean.dim, accumulate=Accumulate.RESULT, symbolic=True)
def mean(x, dim, keepdim, dtype):
    return average(x, dim, keepdim)


@converts(aten.mean.default, accumulate=Accumulate.RESULT, symbolic=True)
def mean_all(x, dtype):
    return average(x, None, False)


@converts(aten.prod.dim_int, accumulate=Accumulate.RESULT, symbolic=True)
def prod(x, dim, keepdim, dtype):
    return product(x, dim, keepdim)


@converts(aten.prod.default, accumulate=Accumulate.RESULT, symbolic=True)
def prod_all(x, dtype):
    return product(x, None, False)


@converts(aten.amax.default, symbolic=True)
def amax(x, dim, keepdim):
    return extreme("max", x, dim, keepdim)


@converts(aten.amin.default, symbolic=True)
def amin(x, dim, keepdim):
    return extreme("min", x, dim, keepdim)


@converts(aten.max.default, symbolic=True)
def max_all(x):
    return extreme("max", x, None, False)


@converts(aten.min.default, symbolic=True)
def min_all(x):
    return extreme("min", x, None, False)


@converts(aten.max.dim, symbolic=True)
def max_dim(x, dim, keepdim):
    return extreme("max", x, dim, keepdim), position("max", x, dim, keepdim)


@converts(aten.min.dim, symbolic=True)
def min_dim(x, dim, keepdim):
    return extreme("min", x, dim, keepdim), position("min", x, dim, keepdim)


@converts(aten.argmax.default, symbolic=True)
def argmax(x, dim, keepdim, *, sizes):
    """Without a dim the position counts through the whole tensor."""
    return argument("max", x, dim, keepdim, sizes)


@converts(aten.argmin.default, symbolic=True)
def argmin(x, dim, keepdim, *, sizes):
    return argument("min", x, dim, keepdim, sizes)


@converts(aten.any.default, symbolic=True)
def any_all(x):
    return truth("max", x, None, False)


@converts(aten.any.dim, aten.any.dims, symbolic=True)
def any_dim(x, dim, keepdim):
    return truth("max", x, dim, keepdim)


@converts(aten.all.default, symbolic=True)
def all_all(x):
    return truth("min", x, None, False)


@converts(aten.all.dim, aten.all.dims, symbolic=True)
def all_dim(x, dim, keepdim):
    return truth("min", x, dim, keepdim)


@converts(aten.var.correction, accumulate=Accumulate.OPMATH, symbolic=True)
def var(x, dim, correction, keepdim):
    return variance(x, dim, correction, keepdim)


@converts(aten.std.correction, accumulate=Accumulate.OPMATH, symbolic=True)
def std(x, dim, correction, keepdim):
    return deviation(x, dim, correction, keepdim)


@converts(aten.var_mean.correction, accumulate=Accumulate.OPMATH, symbolic=True)
def var_mean(x, dim, correction, keepdim):
    return variance(x, dim, correction, keepdim), average(x, dim, keepdim)


@converts(aten.std_mean.correction, accumulate=Accumulate.OPMATH, symbolic=True)
def std_mean(x, dim, correction, keepdim):
    return deviation(x, dim, correction, keepdim), average(x, dim, keepdim)


@converts(aten.logsumexp.default, accumulate=Accumulate.RESULT, symbolic=True)
def logsumexp(x, dim, keepdim):
    """Infinite extremes are not subtracted, so that inf and -inf come out as they are."""

    def finite(v):
        return tirx.Select(tirx.abs(v) == infinity(v), number(0, v), v)

    top = pointwise("finite", finite, extreme("max", x, dim, True))
    powers = pointwise("shifted_exp", lambda v, m: tirx.exp(v - m), x, top)
    within = total(powers, dim, keepdim)
    return pointwise("logsumexp", lambda s, m: tirx.log(s) + m, within, reshaped(top, shape_of(within)))


@converts(aten.linalg_vector_norm.default, accumulate=Accumulate.RESULT, symbolic=True)
def vector_norm(x, ord, dim, keepdim, dtype):
    size = pointwise("abs", tirx.abs, x)
    if ord != 0 and all(shape_of(x)[d] == 1 for d in positives(dim, len(shape_of(x)))):
        return total(size, dim, keepdim)
    if ord in (float("inf"), float("-inf")):
        return extreme("max" if ord > 0 else "min", size, dim, keepdim)
    if ord == 0:
        return total(pointwise("nonzero", lambda v: is_true(v).astype(v.ty.dtype), x), dim, keepdim)
    if ord == 1:
        return total(size, dim, keepdim)
    if ord == 2:
        return R.sqrt(total(pointwise("square", lambda v: v * v, x), dim, keepdim))
    powers = pointwise("power", lambda v: power(v, number(ord, v)), size)
    return pointwise("root", lambda v: power(v, number(1 / ord, v)), total(powers, dim, keepdim))


def total(x: Expr, dim, keepdim: bool) -> Expr:
    """The sum in the type that x has."""
    return reduced("sum", "sum", lambda v: v, x, positives(dim, len(shape_of(x))), keepdim)


def product(x: Expr, dim, keepdim: bool) -> Expr:
    return reduced("prod", "prod", lambda v: v, x, positives(dim, len(shape_of(x))), keepdim)


def average(x: Expr, dim, keepdim: bool) -> Expr:
    """The sum over the number of elements; NaN of none."""
    count = counted(x, dim)
    return pointwise("average", lambda v: v / converted(count, str(v.ty.dtype)), total(x, dim, keepdim))


def counted(x: Expr, dim) -> Expr:
    """How many elements are reduced into one, as a 64-bit TIR expression."""
    shape = shape_of(x)
    return size_product([shape[d] for d in positives(dim, len(shape))])


def extreme(how: str, x: Expr, dim, keepdim: bool) -> Expr:
    """The largest or smallest element; NaN where there is one, in the bridge's own kernels."""
    if dtype_of(x) == "bool":
        return truth(how, x, dim, keepdim)
    return reduced(f"a{how}", how, lambda v: v, x, positives(dim, len(shape_of(x))), keepdim)


def truth(how: str, x: Expr, dim, keepdim: bool) -> Expr:
    """Whether any element ("max") or every element ("min") is not zero."""
    ones = cast(cast(x, "bool"), "int8")
    made = reduced("any" if how == "max" else "all", how, lambda v: v, ones, positives(dim, len(shape_of(x))), keepdim)
    return cast(cast(made, "bool"), "uint8") if dtype_of(x) == "uint8" else cast(made, "bool")


def argument(how: str, x: Expr, dim, keepdim: bool, sizes: list[Size]) -> Expr:
    if dim is None:
        x = reshaped(x, [size_product(shape_of(x))])
        return reshaped(position(how, x, 0, False), sizes)
    return position(how, x, dim, keepdim)


def position(how: str, x: Expr, dim: int, keepdim: bool) -> Expr:
    """Where along a dimension the extreme is: the first of equals, and the first NaN before any number.

    Two plain reductions: the extreme, and the least position that holds it.
    """
    if not shape_of(x):
        return R.full([], const(0, "int64"), "int64")
    (dim,) = positives(dim, len(shape_of(x)))
    x = cast(x, "int8") if dtype_of(x) == "bool" else x
    found = extreme(how, x, dim, True)
    return reduced("position", "min", held_at(dim), [x, found], [dim], keepdim)


def held_at(dim: int) -> Callable[..., Expr]:
    """The position where an element is the extreme, and a large number where it is not."""

    def element(v: Expr, top: Expr, *, index: list[Expr]) -> Expr:
        held = tirx.Or(v == top, tirx.And(is_nan(v), is_nan(top)))
        return tirx.Select(held, index[dim].astype("int64"), tirx.const(2**62, "int64"))

    return element


def variance(x: Expr, dim, correction, keepdim: bool) -> Expr:
    """In two passes: the mean first, then the squares of what differs from it."""
    correction = 1 if correction is None else correction
    middle = average(x, dim, True)
    squares = pointwise("squared_difference", lambda v, m: (v - m) * (v - m), x, middle)
    count = counted(x, dim)

    def element(v):
        name = str(v.ty.dtype)
        return v / larger(converted(count, name) - number(correction, v), number(0, v))

    return pointwise("variance", element, total(squares, dim, keepdim))


def deviation(x: Expr, dim, correction, keepdim: bool) -> Expr:
    """The root of the variance, which is kept in float64: its squares overflow where the root does not."""
    return R.sqrt(variance(cast(x, "float64"), dim, correction, keepdim))
