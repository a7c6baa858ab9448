"""Other ways to look at the same elements. In a functional graph a view is a copy with a promise."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from bridge.backends.tvm.compat import Expr, R, Size, bound, dtype_name, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import compute, pointwise
from bridge.backends.tvm.table import converts
from bridge.ir.shapes import positive

aten = torch.ops.aten

TO_THE_END = 2**63 - 1
"""What torch writes for the end of a slice that has none."""


@converts(
    aten.alias.default,
    aten.detach.default,
    aten.clone.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    symbolic=True,
)
def alias(x):
    return x


@converts(
    aten.view.default,
    aten._unsafe_view.default,
    aten.view_copy.default,
    symbolic=True,
)
def view(x, size, *, sizes):
    """One size may be -1, which the fake tensor knows."""
    return reshaped(x, sizes)


@converts(aten.squeeze.default, symbolic=True)
def squeeze(x, *, sizes):
    return reshaped(x, sizes)


@converts(aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, symbolic=True)
def squeeze_dims(x, dim, *, sizes):
    return reshaped(x, sizes)


@converts(aten.permute.default, aten.permute_copy.default, symbolic=True)
def permute(x, dims):
    return R.permute_dims(x, [positive(d, len(dims)) for d in dims]) if dims else x


@converts(aten.transpose.int, symbolic=True)
def transpose(x, dim0, dim1):
    rank = len(shape_of(x))
    order = list(range(rank))
    if rank:
        a, b = positive(dim0, rank), positive(dim1, rank)
        order[a], order[b] = order[b], order[a]
    return permute(x, order)


@converts(aten.t.default, symbolic=True)
def t(x):
    return permute(x, list(reversed(range(len(shape_of(x))))))


@converts(aten.expand.default, symbolic=True)
def expand(x, size, implicit, *, sizes):
    """-1 keeps the size that is there."""
    return R.broadcast_to(x, sizes)


@converts(aten.slice.Tensor, symbolic=True)
def slice_(x, dim, start, end, step, *, sizes):
    """The length is the fake tensor's: a start behind the end is an empty slice, not an error."""
    dim = positive(dim, len(sizes))
    begin = clamped(0 if start is None else start, shape_of(x)[dim])
    return piece(x, dim, begin, sizes[dim], step)


@converts(aten.narrow.default, aten.narrow_copy.default, symbolic=True)
def narrow(x, dim, start, length):
    dim = positive(dim, len(shape_of(x)))
    return piece(x, dim, clamped(start, shape_of(x)[dim]), length)


@converts(aten.select.int, symbolic=True)
def select(x, dim, index, *, sizes):
    dim = positive(dim, len(shape_of(x)))
    size = shape_of(x)[dim]
    if isinstance(index, int):
        index = index + size if index < 0 else index
    else:
        index = tirx.Select(index < 0, index + size, index)
    return reshaped(piece(x, dim, index, 1), sizes)


@converts(aten.split_with_sizes.default, symbolic=True)
def split_with_sizes(x, split_sizes, dim):
    dim = positive(dim, len(shape_of(x)))
    pieces, begin = [], 0
    for size in split_sizes:
        pieces.append(piece(x, dim, begin, size))
        begin = begin + size
    return tuple(pieces)


@converts(aten.split.Tensor)
def split(x, split_size, dim, *, sizes):
    dim = positive(dim, len(shape_of(x)))
    return split_with_sizes(x, [shape[dim] for shape in sizes], dim)


@converts(aten.unbind.int, aten.unbind_copy.int)
def unbind(x, dim, *, sizes):
    dim = positive(dim, len(shape_of(x)))
    return tuple(reshaped(piece(x, dim, i, 1), shape) for i, shape in enumerate(sizes))


@converts(aten.diagonal.default, symbolic=True)
def diagonal(x, offset, dim1, dim2, *, sizes):
    rank = len(shape_of(x))
    a, b = positive(dim1, rank), positive(dim2, rank)
    rest = [d for d in range(rank) if d not in (a, b)]

    def element(index, v):
        at = dict(zip(rest, index[:-1], strict=True))
        at[a] = index[-1] + max(-offset, 0)
        at[b] = index[-1] + max(offset, 0)
        return v(*(at[d] for d in range(rank)))

    return compute("diagonal", sizes, element, x)


@converts(aten.unfold.default, symbolic=True)
def unfold(x, dimension, size, step, *, sizes):
    """Windows of a dimension, as a new last dimension."""
    if not shape_of(x):
        return R.broadcast_to(x, sizes)
    dim = positive(dimension, len(shape_of(x)))

    def element(index, v):
        *at, inside = index
        at[dim] = at[dim] * step + inside
        return v(*at)

    return compute("unfold", sizes, element, x)


def only_dense(x, storage_offset, size, stride):
    """A view of the storage can be told from the values alone where they fill it in order."""
    if not x.is_contiguous() or x.storage_offset():
        return "as_strided of a tensor that does not fill its storage in order"
    if not all(statically_known_true(s >= 0) for s in stride):
        return f"stride={list(stride)}"
    last = (storage_offset or 0) + sum((n - 1) * s for n, s in zip(size, stride))
    if not (statically_known_true(last < x.numel()) or any(statically_known_true(n == 0) for n in size)):
        return "as_strided beyond the tensor"


@converts(aten.as_strided.default, aten.as_strided_copy.default, refuses=only_dense, symbolic=True)
def as_strided(x, size, stride, storage_offset):
    shape = shape_of(x)

    def element(index, v):
        return v(*unflattened(flat_position(index, stride, storage_offset or 0), shape))

    return compute("as_strided", size, element, x)


def only_same_width(x, dtype):
    if x.dtype.itemsize != dtype.itemsize or torch.bool in (x.dtype, dtype):
        return f"{x.dtype} as {dtype}"


@converts(aten.view.dtype, refuses=only_same_width)
def view_dtype(x, dtype):
    return pointwise("reinterpret", lambda v: tirx.reinterpret(dtype_name(dtype), v), x)


def piece(x: Expr, dim: int, begin: Size, length: Size, step: int = 1) -> Expr:
    """`length` elements of a dimension, beginning at `begin`, each `step` apart."""
    end = begin + (length - 1) * step + 1 if not (isinstance(length, int) and length == 0) else begin
    return bound(R.strided_slice(x, axes=[dim], begin=[begin], end=[end], strides=[step], assume_inbound=True))


def clamped(position: Size, size: Size) -> Size:
    """A position of a slice counted from the front, within the dimension."""
    if isinstance(position, int) and isinstance(size, int):
        return min(max(position + size if position < 0 else position, 0), size)
    if isinstance(position, int) and position >= 0:
        return position if position == 0 else tirx.min(tirx.const(position, "int64"), size)
    if isinstance(position, int):
        return tirx.max(size + position, 0)
    from_front = tirx.Select(position < 0, position + size, position)
    return tirx.max(tirx.min(from_front, size), 0)


def flat_position(index, strides, offset) -> Expr:
    """Where an element of a strided view lies in its storage."""
    position = tirx.const(offset, "int64")
    for i, stride in zip(index, strides, strict=True):
        position = position + i * stride
    return position


def unflattened(position: Expr, shape: list[Size]) -> list[Expr]:
    """The index of the element at a flat position of a tensor that fills its storage in order."""
    index = []
    for size in reversed(shape[1:]):
        index.append(tirx.floormod(position, size))
        position = tirx.floordiv(position, size)
    return [position, *reversed(index)] if shape else []
