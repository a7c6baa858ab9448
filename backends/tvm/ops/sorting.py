"""Order along a dimension: sort, the largest few, and running sums, products and extremes. Written as loops.

16-bit floats are sorted as float32: in loops TVM compares their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    Size,
    T,
    added,
    bound,
    c_function,
    dtype_name,
    dtype_of,
    extent,
    is_bool,
    is_nan,
    reshaped,
    shape_of,
    size_product,
    times,
    tirx,
    torch_dtype,
)
from bridge.backends.tvm.kernels import cast, compute, loops, named, nest, pointwise, reduced, reduction, store
from bridge.backends.tvm.ops.view import piece
from bridge.backends.tvm.table import Accumulate, converts
from bridge.ir.shapes import positive

aten = torch.ops.aten


@converts(aten.cumsum.default, accumulate=Accumulate.RESULT, symbolic=True)
def cumsum(x, dim, dtype):
    return running("cumsum", x, dim, added, wider(dtype_of(x)))


@converts(aten.cumprod.default, accumulate=Accumulate.RESULT, symbolic=True)
def cumprod(x, dim, dtype):
    return running("cumprod", x, dim, times, wider(dtype_of(x)))


def wider(name: str) -> str:
    """The type in which ATen keeps what runs along a dimension on a CPU."""
    return "float64" if name == "float32" else name


@converts(aten.logcumsumexp.default, accumulate=Accumulate.OPMATH, symbolic=True)
def logcumsumexp(x, dim):
    def element(a, b):
        top = tirx.Select(tirx.Or(a >= b, is_nan(a)), a, b)
        bottom = tirx.Select(tirx.Or(a >= b, is_nan(a)), b, a)
        same = tirx.And(a == b, tirx.isinf(a))
        return tirx.Select(same, a, top + c_function("log1p", tirx.exp(bottom - top)))

    return running("logcumsumexp", x, dim, element)


@converts(aten.cummax.default, accumulate=Accumulate.OPMATH, symbolic=True)
def cummax(x, dim):
    """The last of equals, and a NaN from where it stands on."""
    return running_extreme("cummax", x, dim, lambda new, old: tirx.Or(with_order(new) >= with_order(old), is_nan(new)))


@converts(aten.cummin.default, accumulate=Accumulate.OPMATH, symbolic=True)
def cummin(x, dim):
    return running_extreme("cummin", x, dim, lambda new, old: tirx.Or(with_order(new) <= with_order(old), is_nan(new)))


@converts(aten.sort.default, accumulate=Accumulate.OPMATH, symbolic=True)
def sort(x, dim, descending):
    return sorted_along(x, dim, descending)


@converts(aten.sort.stable, accumulate=Accumulate.OPMATH, symbolic=True)
def sort_stable(x, stable, dim, descending):
    """Stable whether it is asked for or not."""
    return sorted_along(x, dim, descending)


@converts(aten.topk.default, accumulate=Accumulate.OPMATH, symbolic=True)
def topk(x, k, dim, largest, sorted):
    """In order whether it is asked for or not; of equal elements the first, which torch does not promise."""
    values, positions = sorted_along(x, dim, largest)
    return first(values, dim, k), first(positions, dim, k)


@converts(aten.kthvalue.default, accumulate=Accumulate.OPMATH, symbolic=True)
def kthvalue(x, k, dim, keepdim, *, sizes):
    values, positions = sorted_along(x, dim, False)
    return at_rank(values, dim, k - 1, sizes[0]), at_rank(positions, dim, k - 1, sizes[1])


@converts(aten.median.default, accumulate=Accumulate.OPMATH, symbolic=True)
def median(x):
    """The lower of two in the middle; NaN where there is one."""
    return middle(reshaped(x, [size_product(shape_of(x))]), 0, False, [])[0]


@converts(aten.nanmedian.default, accumulate=Accumulate.OPMATH, symbolic=True)
def nanmedian(x):
    return middle(reshaped(x, [size_product(shape_of(x))]), 0, True, [])[0]


@converts(aten.median.dim, accumulate=Accumulate.OPMATH, symbolic=True)
def median_dim(x, dim, keepdim, *, sizes):
    return middle(x, dim, False, sizes[0])


@converts(aten.nanmedian.dim, accumulate=Accumulate.OPMATH, symbolic=True)
def nanmedian_dim(x, dim, keepdim, *, sizes):
    """NaN does not count, unless there is nothing else."""
    return middle(x, dim, True, sizes[0])


@converts(aten.searchsorted.Tensor, symbolic=True)
def searchsorted(sorted_sequence, x, out_int32, right):
    """How many elements of the sequence, or of its row, lie before each value; equal ones too if `right`."""
    shape, rank = shape_of(x), len(shape_of(sorted_sequence))

    def element(at, over, s, v):
        return counted(s(*(at[:-1] if rank > 1 else ()), over[0]), v(*at), right, out_int32)

    return reduction("searchsorted", "sum", shape, [shape_of(sorted_sequence)[-1]], element, *alike(sorted_sequence, x))


@converts(aten.bucketize.Tensor, symbolic=True)
def bucketize(x, boundaries, out_int32, right):
    def element(at, over, s, v):
        return counted(s(over[0]), v(*at), right, out_int32)

    return reduction("bucketize", "sum", shape_of(x), shape_of(boundaries), element, *alike(boundaries, x))


def middle(x: Expr, dim: int, without_nan: bool, sizes: Sequence[Size]) -> tuple[Expr, Expr]:
    """The value in the middle of a dimension, and where it is; the first NaN where one counts."""
    shape = shape_of(x)
    if not shape:
        return pointwise("copy", lambda v: v, x), R.zeros([], "int64")
    dim = positive(dim, len(shape))
    values, positions = sorted_along(x, dim, False)
    numbers = reduced("numbers", "sum", lambda v: tirx.Select(is_nan(v), extent(0), extent(1)), x, [dim], True)

    def rank(count: Expr) -> Expr:
        whole = count.equal(extent(shape[dim]))
        last = tirx.max((count if without_nan else extent(shape[dim])) - 1, extent(0))
        of_a_nan = count if not without_nan else extent(0)
        return tirx.Select(tirx.Or(whole, tirx.And(without_nan, count > 0)), tirx.floordiv(last, 2), of_a_nan)

    def element(at, v, count):
        front, back = at[:dim], at[dim + 1 :]
        return v(*front, rank(count(*front, extent(0), *back)), *back)

    kept = [1 if d == dim else n for d, n in enumerate(shape)]
    made = [compute("median", kept, element, of, numbers) for of in (values, positions)]
    return reshaped(made[0], sizes), reshaped(made[1], sizes)


def alike(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two tensors in the type that can hold both."""
    name = dtype_name(torch.promote_types(torch_dtype(dtype_of(a)), torch_dtype(dtype_of(b))))
    return cast(a, name), cast(b, name)


def counted(bound_: Expr, value: Expr, right: bool, as_int32: bool) -> Expr:
    """1 where the value lies behind the bound; a NaN lies behind all."""
    before = bound_ > value if right else bound_ >= value
    one = tirx.const(1, "int32" if as_int32 else "int64")
    return tirx.Select(before, one - one, one)


def running(name: str, x: Expr, dim: int, combine: Callable[[Expr, Expr], Expr], kept: str = "") -> Expr:
    """Each element combined with all before it, kept in a type of its own if one is given."""
    shape, kept = shape_of(x), kept or dtype_of(x)
    if not shape:
        return bound(x)
    dim = positive(dim, len(shape))

    def body(out, v):
        def at(place):
            with T.serial(0, extent(shape[dim])) as i:
                here, before = inserted(place, dim, i), inserted(place, dim, tirx.max(i - 1, extent(0)))
                new = v[tuple(here)].astype(kept)
                store(out, here, tirx.Select(i > 0, combine(out[tuple(before)], new), new))

        nest(without(shape, dim), at)

    return loops(name, [(shape, kept)], body, x)[0]


def running_extreme(name: str, x: Expr, dim: int, wins: Callable[[Expr, Expr], Expr]) -> tuple[Expr, Expr]:
    """The extreme so far, and where it stands."""
    shape = shape_of(x)
    if not shape:
        return bound(x), R.zeros([], "int64")
    dim = positive(dim, len(shape))

    def body(values, positions, v):
        def at(place):
            with T.serial(0, extent(shape[dim])) as i:
                here, before = inserted(place, dim, i), inserted(place, dim, tirx.max(i - 1, extent(0)))
                new = v[tuple(here)]
                old = tirx.if_then_else(i > 0, values[tuple(before)], new)
                taken = tirx.Or(i.equal(extent(0)), wins(new, old))
                store(positions, here, tirx.if_then_else(taken, i, positions[tuple(before)]))
                store(values, here, tirx.Select(taken, new, old))

        nest(without(shape, dim), at)

    made = loops(name, [(shape, dtype_of(x)), (shape, "int64")], body, x)
    return made[0], made[1]


def sorted_along(x: Expr, dim: int, descending: bool) -> tuple[Expr, Expr]:
    """Values and positions in order; a NaN is larger than every number, and equals keep their order.

    Runs of 1, 2, 4, … are merged into as much room again, and copied back.
    """
    shape, name = shape_of(x), dtype_of(x)
    if not shape:
        return bound(x), R.zeros([], "int64")
    dim = positive(dim, len(shape))
    length = extent(shape[dim])

    def body(values, positions, more_values, more_positions, heads, v):
        def at(place):
            def place_of(i):
                return inserted(place, dim, i)

            with T.serial(0, length) as i:
                store(values, place_of(i), v[tuple(place_of(i))])
                store(positions, place_of(i), i)
            with T.serial(0, levels(shape[dim])) as level:
                width = named(tirx.shift_left(extent(1), level))
                with T.serial(0, runs(width, length)) as run:
                    begin = named(run * 2 * width)
                    merge(begin, tirx.min(begin + width, length), tirx.min(begin + 2 * width, length), place_of)
                with T.serial(0, length) as i:
                    store(values, place_of(i), more_values[tuple(place_of(i))])
                    store(positions, place_of(i), more_positions[tuple(place_of(i))])

        def merge(begin, middle, end, place_of):
            store(heads, [0], begin)
            store(heads, [1], middle)
            with T.serial(0, end - begin) as k:
                left, right = named(heads[0]), named(heads[1])
                a = values[tuple(place_of(tirx.min(left, length - 1)))]
                b = values[tuple(place_of(tirx.min(right, length - 1)))]
                of_left = named(tirx.And(left < middle, tirx.Or(right >= end, may_lead(a, b, descending))))
                source = place_of(tirx.Select(of_left, left, tirx.min(right, length - 1)))
                store(more_values, place_of(begin + k), tirx.Select(of_left, a, b))
                store(more_positions, place_of(begin + k), positions[tuple(source)])
                store(heads, [0], tirx.Select(of_left, left + 1, left))
                store(heads, [1], tirx.Select(of_left, right, right + 1))

        nest(without(shape, dim), at)

    results = [(shape, name), (shape, "int64"), (shape, name), (shape, "int64"), ([2], "int64")]
    made = loops("sort", results, body, x)
    return made[0], made[1]


def may_lead(a: Expr, b: Expr, descending: bool) -> Expr:
    """a may stand in front of b. Said without a negation: TVM takes `not a < b` for `a >= b`, which a NaN is not."""
    a, b = with_order(a), with_order(b)
    return tirx.Or(a >= b, is_nan(a)) if descending else tirx.Or(a <= b, is_nan(b))


def with_order(v: Expr) -> Expr:
    """False and True as 0 and 1."""
    return v.astype("int8") if is_bool(v) else v


def levels(length: Size) -> Expr:
    """How often runs have to be doubled."""
    return extent((length - 1).bit_length() if isinstance(length, int) and length else 62)


def runs(width: Expr, length: Expr) -> Expr:
    """How many pairs of runs there are; none where one run holds everything."""
    pairs = tirx.floordiv(length + 2 * width - 1, 2 * width)
    return tirx.Select(width < length, pairs, extent(0))


def first(x: Expr, dim: int, count: Size) -> Expr:
    return piece(x, positive(dim, len(shape_of(x))), 0, count) if shape_of(x) else x


def at_rank(x: Expr, dim: int, rank: Size, shape: Sequence[Size]) -> Expr:
    return reshaped(piece(x, positive(dim, len(shape_of(x))), rank, 1), shape) if shape_of(x) else x


def without(shape: Sequence[Size], dim: int) -> list[Size]:
    return [n for d, n in enumerate(shape) if d != dim]


def inserted(place: Sequence[Expr], dim: int, i: Expr) -> list[Expr]:
    return [*place[:dim], i, *place[dim:]]
