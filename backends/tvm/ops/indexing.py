"""Elements picked by index tensors and by position. What writes at indices is in `scatter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    Size,
    broadcast_shape,
    const,
    dtype_name,
    dtype_of,
    extent,
    is_float,
    number,
    reshaped,
    shape_of,
    tirx,
)
from bridge.backends.tvm.kernels import broadcast_index, cast, compute, reduction
from bridge.backends.tvm.ops.view import clamped
from bridge.backends.tvm.table import converts
from bridge.ir.shapes import positive

aten = torch.ops.aten


@converts(aten.embedding.default, symbolic=True)
def embedding(weight, indices, padding_idx, scale_grad_by_freq):
    """The two options concern the gradient alone."""
    return picked("embedding", weight, 0, indices)


@converts(aten.index_select.default, symbolic=True)
def index_select(x, dim, index):
    rank = len(shape_of(x))
    if not rank:
        return x
    return picked("index_select", x, positive(dim, rank), index if shape_of(index) else reshaped(index, [1]))


@converts(aten.gather.default, symbolic=True)
def gather(x, dim, index, sparse_grad):
    if not shape_of(x):
        return R.broadcast_to(x, shape_of(index))
    if is_empty(index):
        return R.zeros(shape_of(index), dtype_of(x))
    dim = positive(dim, len(shape_of(x)))
    shape = shape_of(index) or [1]
    size = shape_of(x)[dim]

    def element(at, v, i):
        def read(position):
            return v(*at[:dim], position, *at[dim + 1 :])

        return looked_up(read, i(*at), size, dtype_of(x))

    made = compute("gather", shape, element, x, reshaped(index, shape))
    return reshaped(made, shape_of(index))


@converts(aten.take.default, symbolic=True)
def take(x, index):
    flat = reshaped(x, [numel(x)])
    return picked("take", flat, 0, index)


def no_masks(indices):
    if any(is_mask(i) for i in indices):
        return "an index that is a mask"


def is_mask(index) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@converts(aten.index.Tensor, aten._unsafe_index.Tensor, refuses=no_masks, symbolic=True)
def index(x, indices):
    """Index tensors that stand side by side give their dimensions where they stand, others in front."""
    plan = Indexing(x, indices)
    read = [i for i in indices if i is not None]

    def element(at, v, *given):
        positions = [g(*broadcast_index(plan.inner(at), shape_of(i))) for g, i in zip(given, read, strict=True)]
        return plan.guarded(lambda wrapped: v(*plan.outer(at, wrapped)), positions, dtype_of(x))

    return compute("index", plan.shape, element, x, *read)


@converts(aten.flip.default, symbolic=True)
def flip(x, dims):
    shape = shape_of(x)
    turned = {positive(d, len(shape)) for d in dims}

    def element(at, v):
        return v(*(extent(n) - 1 - i if d in turned else i for d, (i, n) in enumerate(zip(at, shape, strict=True))))

    return compute("flip", shape, element, x)


@converts(aten.roll.default, symbolic=True)
def roll(x, shifts, dims):
    if is_empty(x):
        return x
    if not dims:
        flat = reshaped(x, [numel(x)])
        return reshaped(roll(flat, shifts, [0]), shape_of(x))
    shape = shape_of(x)
    by = {}
    for shift, dim in zip(shifts, dims, strict=True):
        dim = positive(dim, len(shape))
        by[dim] = by.get(dim, 0) + shift

    def element(at, v):
        return v(*(tirx.floormod(i - by.get(d, 0), extent(shape[d])) if d in by else i for d, i in enumerate(at)))

    return compute("roll", shape, element, x)


@converts(aten.repeat.default, symbolic=True)
def repeat(x, repeats, *, sizes):
    if is_empty(x):
        return R.zeros(sizes, dtype_of(x))
    own = shape_of(x)
    front = len(sizes) - len(own)

    def element(at, v):
        return v(*(0 if n == 1 else tirx.floormod(i, extent(n)) for i, n in zip(at[front:], own, strict=True)))

    return compute("repeat", sizes, element, x)


@converts(aten.tril.default, symbolic=True)
def tril(x, diagonal):
    return triangle(x, lambda row, column: column - row <= diagonal)


@converts(aten.triu.default, symbolic=True)
def triu(x, diagonal):
    return triangle(x, lambda row, column: column - row >= diagonal)


@converts(aten.cat.default, symbolic=True)
def cat(tensors, dim, *, out, sizes):
    """A tensor of shape (0,) joins any other, and gives it nothing."""
    parts = [cast(t, dtype_name(out.dtype)) for t in tensors]
    parts = [p for p in parts if shape_of(p) != [0] or len(sizes) == 1]
    dim = positive(dim, len(sizes))
    full = [p for p in parts if shape_of(p)[dim] != 0] or parts[:1]
    return full[0] if len(full) == 1 else R.concat(full, axis=dim)


@converts(aten.stack.default, symbolic=True)
def stack(tensors, dim, *, out, sizes):
    dim = positive(dim, len(sizes))
    one = [*sizes[:dim], 1, *sizes[dim + 1 :]]
    return cat([reshaped(t, one) for t in tensors], dim, out=out, sizes=sizes)


@converts(aten.constant_pad_nd.default, symbolic=True)
def constant_pad_nd(x, pad, value, *, sizes):
    """Pairs from the last dimension on; a negative one cuts off."""
    shape = shape_of(x)
    before = dict(zip(reversed(range(len(shape))), pad[::2], strict=False))

    def element(at, v):
        source = [i - before.get(d, 0) for d, i in enumerate(at)]
        inside = [
            c
            for d, (i, n) in enumerate(zip(source, shape, strict=True))
            if d in before
            for c in (i >= 0, i < extent(n))
        ]
        return tirx.if_then_else(tirx.all(*inside), v(*source), number(value, dtype_of(x))) if inside else v(*source)

    return compute("pad", sizes, element, x)


@converts(aten.slice_scatter.default, symbolic=True)
def slice_scatter(x, src, dim, start, end, step):
    dim = positive(dim, len(shape_of(x)))
    begin = clamped(0 if start is None else start, shape_of(x)[dim])
    stop = begin + shape_of(src)[dim] * step

    def element(at, v, new):
        i = at[dim]
        inside = [i >= begin, i < stop]
        if step != 1:
            inside.append(tirx.floormod(i - begin, step) == 0)
        place = (*at[:dim], tirx.floordiv(i - begin, step) if step != 1 else i - begin, *at[dim + 1 :])
        return tirx.if_then_else(tirx.all(*inside), new(*place), v(*at))

    return compute("slice_scatter", shape_of(x), element, x, cast(src, dtype_of(x)))


@converts(aten.slice_backward.default, symbolic=True)
def slice_backward(grad_output, input_sizes, dim, start, end, step):
    name = dtype_of(grad_output)
    zeros = R.full(input_sizes, const(0, name), name)
    return slice_scatter(zeros, grad_output, dim, start, end, step)


@converts(aten.select_scatter.default, symbolic=True)
def select_scatter(x, src, dim, index):
    dim = positive(dim, len(shape_of(x)))
    chosen = wrapped(index, shape_of(x)[dim])

    def element(at, v, new):
        return tirx.Select(at[dim].equal(chosen), new(*at[:dim], *at[dim + 1 :]), v(*at))

    return compute("select_scatter", shape_of(x), element, x, cast(src, dtype_of(x)))


@converts(aten.select_backward.default, symbolic=True)
def select_backward(grad_output, input_sizes, dim, index):
    name = dtype_of(grad_output)
    return select_scatter(R.full(input_sizes, const(0, name), name), grad_output, dim, index)


@converts(aten.diagonal_scatter.default, symbolic=True)
def diagonal_scatter(x, src, offset, dim1, dim2):
    shape = shape_of(x)
    a, b = positive(dim1, len(shape)), positive(dim2, len(shape))
    length = shape_of(src)[-1]

    def element(at, v, new):
        rest = [i for d, i in enumerate(at) if d not in (a, b)]
        along = at[a] - max(-offset, 0)
        inside = tirx.all((at[b] - at[a]).equal(offset), along >= 0, along < extent(length))
        return tirx.if_then_else(inside, new(*rest, along), v(*at))

    return compute("diagonal_scatter", shape, element, x, cast(src, dtype_of(x)))


class Indexing:
    """How `x[indices]` lies in its result: where the dimensions of the index tensors are, and the others."""

    def __init__(self, x: Expr, indices: Sequence[Expr | None]) -> None:
        self.x = shape_of(x)
        self.dims = [d for d, i in enumerate(indices) if i is not None]
        self.broadcast = broadcast_shape(*(shape_of(i) for i in indices if i is not None))
        side_by_side = self.dims == list(range(self.dims[0], self.dims[-1] + 1))
        self.front = self.dims[0] if side_by_side else 0
        rest = [n for d, n in enumerate(self.x) if d not in self.dims]
        self.shape = [*rest[: self.front], *self.broadcast, *rest[self.front :]]

    def inner(self, at: Sequence[Expr]) -> Sequence[Expr]:
        """The position in the index tensors for a position in the result."""
        return at[self.front : self.front + len(self.broadcast)]

    def outer(self, at: Sequence[Expr], positions: Sequence[Expr]) -> list[Expr]:
        """The position in x for a position in the result and what the index tensors say there."""
        chosen = dict(zip(self.dims, positions, strict=True))
        rest = iter([*at[: self.front], *at[self.front + len(self.broadcast) :]])
        return [chosen[d] if d in chosen else next(rest) for d in range(len(self.x))]

    def guarded(self, read: Callable[[list[Expr]], Expr], positions: Sequence[Expr], name: str) -> Expr:
        """What `read` gives for the positions, each counted from the front; poison where one is outside."""
        if any(self.x[d] == 0 for d in self.dims):
            return poison(name)
        wrapped_ = [wrapped(p, self.x[d]) for d, p in zip(self.dims, positions, strict=True)]
        inside = [inside_of(p, self.x[d]) for d, p in zip(self.dims, wrapped_, strict=True)]
        held = [held_inside(p, self.x[d]) for d, p in zip(self.dims, wrapped_, strict=True)]
        return tirx.Select(tirx.all(*inside), read(held), poison(name))


def picked(name: str, x: Expr, dim: int, index: Expr) -> Expr:
    """Slices of a dimension in the order of an index tensor, whose dimensions take the place of that one."""
    shape, within = shape_of(x), shape_of(index)

    def element(at, v, i):
        def read(position):
            return v(*at[:dim], position, *at[dim + len(within) :])

        return looked_up(read, i(*at[dim : dim + len(within)]), shape[dim], dtype_of(x))

    return compute(name, [*shape[:dim], *within, *shape[dim + 1 :]], element, x, index)


def looked_up(read: Callable[[Expr], Expr], position: Expr, size: Size, name: str) -> Expr:
    """What `read` gives for a position, which may count from the end; poison where it is outside."""
    if isinstance(size, int) and size == 0:
        return poison(name)
    position = wrapped(position, size)
    return tirx.Select(inside_of(position, size), read(held_inside(position, size)), poison(name))


def wrapped(position: Expr | int, size: Size) -> Expr:
    """A position counted from the front."""
    if isinstance(position, int):
        return extent(position) if position >= 0 else extent(size) + position
    position = position.astype("int64")
    return tirx.Select(position < 0, position + extent(size), position)


def inside_of(position: Expr, size: Size) -> Expr:
    return tirx.And(position >= 0, position < extent(size))


def held_inside(position: Expr, size: Size) -> Expr:
    """The nearest position that can be read without harm."""
    return tirx.max(tirx.min(position, extent(size) - 1), extent(0))


def poison(name: str) -> Expr:
    """What an index outside of its tensor gives, where torch raises: NaN, or the least integer."""
    if is_float(name):
        return number(float("nan"), name)
    return number(False, name) if name == "bool" else tirx.min_value(name)


def is_empty(x: Expr) -> bool:
    """A tensor without elements."""
    return any(isinstance(n, int) and n == 0 for n in shape_of(x))


def numel(x: Expr) -> Size:
    """The number of elements of a tensor."""
    return element_count(shape_of(x))


def element_count(sizes: Sequence[Size]) -> Size:
    """The number of elements of a shape."""
    count: Size = 1
    for n in sizes:
        count = count * n
    return count


def triangle(x: Expr, kept: Callable[[Expr, Expr], Expr]) -> Expr:
    def element(at, v):
        return tirx.Select(kept(at[-2], at[-1]), v(*at), number(0, dtype_of(x)))

    return compute("triangle", shape_of(x), element, x)


@converts(aten._convert_indices_from_coo_to_csr.default, symbolic=True)
def csr_from_coo(x, size, out_int32, *, sizes):
    """For each row, and for the end, how many of the sorted row numbers are below it."""
    name = "int32" if out_int32 else "int64"

    def element(at, over, row):
        return tirx.Select(row(over[0]) < at[0], tirx.const(1, name), tirx.const(0, name))

    return reduction("rows_below", "sum", sizes, shape_of(x), element, x)
