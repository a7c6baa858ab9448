"""What writes at indices. Repeated indices are met in the order in which torch meets them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    T,
    added,
    broadcast_shape,
    const,
    dtype_of,
    extent,
    is_float,
    larger,
    number,
    reshaped,
    shape_of,
    smaller,
    times,
    tirx,
    torch_dtype,
)
from bridge.backends.tvm.kernels import (
    binary,
    broadcast_index,
    cast,
    compute,
    loops,
    named,
    nest,
    pointwise,
    scalar,
    store,
)
from bridge.backends.tvm.ops.indexing import (
    Indexing,
    element_count,
    held_inside,
    inside_of,
    numel,
    poison,
    wrapped,
)
from bridge.backends.tvm.ops.masks import masked_put, no_masks_but_for_one_value
from bridge.backends.tvm.ops.view import flat_position, only_dense, unflattened
from bridge.backends.tvm.table import Accumulate, converts
from bridge.ir.shapes import positive

aten = torch.ops.aten


@converts(aten.scatter.src, accumulate=Accumulate.OPMATH, symbolic=True)
def scatter(x, dim, index, src):
    return written(x, dim, index, src, lambda old, new: new)


@converts(aten.scatter.value, accumulate=Accumulate.OPMATH, symbolic=True)
def scatter_value(x, dim, index, value):
    return written(x, dim, index, scalar(value, dtype_of(x)), lambda old, new: new)


@converts(aten.scatter_add.default, accumulate=Accumulate.OPMATH, symbolic=True)
def scatter_add(x, dim, index, src):
    return written(x, dim, index, src, added)


REDUCES = {"sum": added, "prod": times, "amax": larger, "amin": smaller}


@converts(aten.scatter_reduce.two, accumulate=Accumulate.OPMATH, symbolic=True)
def scatter_reduce(x, dim, index, src, reduce, include_self):
    """src may be larger than index; the part beyond index is not read. A mean of integers is rounded down."""
    name = dtype_of(x)
    if not include_self:
        x = written(x, dim, index, scalar(neutral(reduce, name), name), lambda old, new: new)
    if reduce != "mean":
        return written(x, dim, index, src, REDUCES[reduce])
    counts = R.full(shape_of(x), const(1 if include_self else 0, name), name)
    counts = written(counts, dim, index, const(1, name), added)
    return pointwise("mean", mean_of, written(x, dim, index, src, added), counts)


def mean_of(whole: Expr, count: Expr) -> Expr:
    count = larger(count, number(1, count))
    return whole / count if is_float(whole) else tirx.floordiv(whole, count)


def neutral(reduce: str, name: str) -> float:
    """What changes nothing when it is combined."""
    if reduce in ("sum", "mean", "prod"):
        return 1 if reduce == "prod" else 0
    if is_float(name):
        return -math.inf if reduce == "amax" else math.inf
    limits = (0, 1) if name == "bool" else (torch.iinfo(torch_dtype(name)).min, torch.iinfo(torch_dtype(name)).max)
    return limits[0] if reduce == "amax" else limits[1]


@converts(aten.index_add.default, accumulate=Accumulate.OPMATH, symbolic=True)
def index_add(x, dim, index, source, alpha):
    source = source if alpha == 1 else binary(R.multiply, source, const(alpha, source))
    return written_along(x, dim, index, source, added)


@converts(aten.index_copy.default, accumulate=Accumulate.OPMATH, symbolic=True)
def index_copy(x, dim, index, source):
    return written_along(x, dim, index, source, lambda old, new: new)


@converts(aten.index_reduce.default, accumulate=Accumulate.OPMATH, symbolic=True)
def index_reduce(x, dim, index, source, reduce, include_self):
    """`scatter_reduce` with whole slices; a mean of integers is rounded towards zero."""
    shape, name = shape_of(x), dtype_of(x)
    if not include_self:
        fill = compute("neutral", shape_of(source), lambda _: number(neutral(reduce, name), name))
        x = written_along(x, dim, index, fill, lambda old, new: new)
    if reduce != "mean":
        return written_along(x, dim, index, source, REDUCES[reduce])
    counts = R.full(shape, const(1 if include_self else 0, name), name)
    ones = R.full(shape_of(source), const(1, name), name)
    counts = written_along(counts, dim, index, ones, added)
    return pointwise("mean", mean_of, written_along(x, dim, index, source, added), counts)


@converts(aten.put.default, accumulate=Accumulate.OPMATH, symbolic=True)
def put(x, index, source, accumulate):
    """At flat positions."""
    shape = shape_of(x)
    flat = reshaped(x, [numel(x)])
    places, values = reshaped(index, [numel(index)]), reshaped(source, [numel(source)])
    return reshaped(written(flat, 0, places, values, added if accumulate else lambda old, new: new), shape)


@converts(
    aten.index_put.default,
    aten._unsafe_index_put.default,
    accumulate=Accumulate.OPMATH,
    refuses=no_masks_but_for_one_value,
    symbolic=True,
)
def index_put(x, indices, values, accumulate):
    if any(i is not None and dtype_of(i) in ("bool", "uint8") for i in indices):
        return masked_put(x, indices, cast(values, dtype_of(x)), accumulate)
    plan = Indexing(x, indices)
    given = [i for i in indices if i is not None]
    values = cast(values, dtype_of(x))

    def body(out, old, new, *positions):
        copied(out, old, plan.x)

        def at(place):
            read = [element_of(p, broadcast_index(plan.inner(place), shape_of(i))) for p, i in zip(positions, given)]
            targets = [named(wrapped(p, plan.x[d])) for d, p in zip(plan.dims, read, strict=True)]
            inside = tirx.all(*(inside_of(p, plan.x[d]) for d, p in zip(plan.dims, targets, strict=True)))
            held = [held_inside(p, plan.x[d]) for d, p in zip(plan.dims, targets, strict=True)]
            target = plan.outer(place, held)
            value = tirx.Select(inside, element_of(new, broadcast_index(place, shape_of(values))), poison(dtype_of(x)))
            store(out, target, added(out[tuple(target)], value) if accumulate else value)

        nest(plan.shape, at)

    return loops("index_put", [(plan.x, dtype_of(x))], body, x, values, *given)[0]


@converts(aten.embedding_dense_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, *, sizes):
    """Rows that were looked up more than once add up; the padding row gets nothing."""
    width, name = sizes[1], dtype_of(grad_output)
    count = reshaped(indices, [numel(indices)])
    grads = reshaped(grad_output, [numel(indices), width])
    times = occurrences(count, num_weights) if scale_grad_by_freq else None

    def body(out, grad, row, *counts):
        nest(sizes, lambda place: store(out, place, number(0, name)))
        with T.serial(0, shape_of(count)[0]) as i:
            at = named(row[i].astype("int64"))
            counted = tirx.And(at != padding_idx, inside_of(at, num_weights))
            with T.If(counted), T.Then(), T.serial(0, width) as j:
                share = grad[i, j] / counts[0][at].astype(name) if counts else grad[i, j]
                store(out, [at, j], out[at, j] + share)

    given = [grads, count] + ([times] if times is not None else [])
    return loops("embedding_backward", [(sizes, name)], body, *given)[0]


@converts(aten.adaptive_max_pool2d_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def adaptive_max_pool2d_backward(grad_output, x, indices):
    return by_flat_position(grad_output, x, indices, 2)


@converts(aten.adaptive_max_pool3d_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def adaptive_max_pool3d_backward(grad_output, x, indices):
    return by_flat_position(grad_output, x, indices, 3)


@converts(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
    accumulate=Accumulate.OPMATH,
    symbolic=True,
)
def replication_pad_backward(grad_output, x, padding):
    """What was copied beyond an edge comes back to the edge."""
    shape, name = shape_of(x), dtype_of(x)
    before = dict(zip(reversed(range(len(shape))), padding[::2], strict=False))

    def body(out, grad):
        nest(shape, lambda place: store(out, place, number(0, name)))

        def at(place):
            to = [held_inside(i - before[d], shape[d]) if d in before else i for d, i in enumerate(place)]
            store(out, to, out[tuple(to)] + grad[tuple(place)])

        nest(shape_of(grad_output), at)

    return loops("replication_pad_backward", [(shape, name)], body, grad_output)[0]


def only_a_given_range(min, max):
    """Without one it is the data's own."""
    return None if min < max else f"min={min} with max={max}"


@converts(aten.histc.default, accumulate=Accumulate.OPMATH, refuses=only_a_given_range, symbolic=True)
def histc(x, bins, min, max):
    """The last bin holds its upper end too; what lies outside is not counted."""
    name = dtype_of(x)

    def body(out, v):
        nest([bins], lambda place: store(out, place, number(0, name)))

        def at(place):
            value = v[tuple(place)]
            inside = tirx.And(value >= number(min, name), value <= number(max, name))
            position = (value - number(min, name)) * number(bins, name) / number(max - min, name)
            to = [tirx.min(tirx.Select(inside, position, number(0, name)).astype("int64"), extent(bins - 1))]
            store(out, to, out[tuple(to)] + tirx.Select(inside, number(1, name), number(0, name)))

        nest(shape_of(x), at)

    return loops("histc", [([bins], name)], body, x)[0]


def by_flat_position(grad: Expr, x: Expr, indices: Expr, dims: int) -> Expr:
    """Zeros of x's shape, with gradients added at flat positions of each plane."""
    shape = shape_of(x)
    planes, size, windows = shape[:-dims], element_count(shape[-dims:]), element_count(shape_of(grad)[-dims:])
    count = element_count(planes)
    zeros = R.zeros([count, size], dtype_of(x))
    grad, indices = reshaped(grad, [count, windows]), reshaped(indices, [count, windows])
    return reshaped(written(zeros, 1, indices, grad, added), shape)


@converts(aten.as_strided_scatter.default, refuses=only_dense, symbolic=True)
def as_strided_scatter(x, src, size, stride, storage_offset):
    shape = shape_of(x)

    def body(out, old, new):
        copied(out, old, shape)
        nest(size, lambda at: store(out, unflattened(flat_position(at, stride, storage_offset or 0), shape),
                                    element_of(new, at)))  # fmt: skip

    return loops("as_strided_scatter", [(shape, dtype_of(x))], body, x, src)[0]


@converts(aten.masked_scatter.default, symbolic=True)
def masked_scatter(x, mask, source):
    """The next element of source for every True, in order."""
    shape, flat = broadcast_shape(shape_of(x), shape_of(mask)), reshaped(source, [numel(source)])
    x, mask = R.broadcast_to(x, shape), R.broadcast_to(mask, shape)

    def body(out, taken, old, where, new):
        store(taken, [0], number(0, "int64"))

        def at(place):
            store(out, place, element_of(old, place))
            with T.If(element_of(where, place)), T.Then():
                store(out, place, new[held_inside(taken[0], shape_of(flat)[0])])
                store(taken, [0], taken[0] + 1)

        nest(shape, at)

    return loops("masked_scatter", [(shape, dtype_of(x)), ([1], "int64")], body, x, mask, flat)[0]


@converts(aten.masked_scatter_backward.default, symbolic=True)
def masked_scatter_backward(grad_output, mask, sizes):
    """The gradients where the mask is True, one after the other; zeros behind them."""
    shape, name = shape_of(grad_output), dtype_of(grad_output)
    length = element_count(sizes)

    def body(out, taken, grad, where):
        nest([length], lambda place: store(out, place, number(0, name)))
        store(taken, [0], number(0, "int64"))

        def at(place):
            with T.If(tirx.And(element_of(where, place), taken[0] < extent(length))), T.Then():
                store(out, [taken[0]], element_of(grad, place))
                store(taken, [0], taken[0] + 1)

        nest(shape, at)

    made = loops("masked_scatter_backward", [([length], name), ([1], "int64")], body, grad_output,
                 R.broadcast_to(mask, shape))[0]  # fmt: skip
    return reshaped(made, sizes)


def written(x: Expr, dim: int, index: Expr, src: Expr, combine) -> Expr:
    """x with `src` written where `index` says along a dimension. A 0-d src is written everywhere.

    An index without elements may have any number of dimensions.
    """
    shape = shape_of(x)
    if any(isinstance(n, int) and n == 0 for n in shape_of(index)):
        return x
    if not shape:
        x, index = reshaped(x, [1]), reshaped(index, [1])
        src = reshaped(src, [1])
        return reshaped(written(x, 0, index, src, combine), [])
    dim = positive(dim, len(shape))

    def body(out, old, positions, new):
        copied(out, old, shape)

        def at(place):
            target = named(wrapped(positions[tuple(place)], shape[dim]))
            to = [*place[:dim], held_inside(target, shape[dim]), *place[dim + 1 :]]
            value = element_of(new, place if shape_of(src) else [])
            value = tirx.Select(inside_of(target, shape[dim]), value, poison(dtype_of(x)))
            store(out, to, combine(out[tuple(to)], value))

        nest(shape_of(index) or [1], at)

    index = index if shape_of(index) else reshaped(index, [1])
    return loops("scatter", [(shape, dtype_of(x))], body, x, index, src)[0]


def written_along(x: Expr, dim: int, index: Expr, source: Expr, combine) -> Expr:
    """x with slices of `source` written where a 1-d `index` says."""
    shape = shape_of(x)
    if not shape:
        return reshaped(written_along(reshaped(x, [1]), 0, index, reshaped(source, [1]), combine), [])
    dim = positive(dim, len(shape))
    across = [shape_of(index)[0] if d == dim and shape_of(index) else n for d, n in enumerate(shape)]
    along = [1] * len(shape)
    along[dim] = across[dim]
    source = reshaped(source, across)
    return written(x, dim, R.broadcast_to(reshaped(index, along), across), source, combine)


def occurrences(index: Expr, size) -> Expr:
    """How often each position is named."""

    def body(out, row):
        nest([size], lambda place: store(out, place, number(0, "int64")))
        with T.serial(0, shape_of(index)[0]) as i:
            at = named(row[i].astype("int64"))
            store(out, [at], out[at] + 1)

    return loops("occurrences", [([size], "int64")], body, index)[0]


def copied(out, old, shape: Sequence) -> None:
    nest(shape, lambda place: store(out, place, element_of(old, place)))


def element_of(buffer, place: Sequence) -> Expr:
    """One element of a buffer in a loop nest, also of a 0-d one."""
    return buffer[tuple(place)] if len(place) else buffer[()]
