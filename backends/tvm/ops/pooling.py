"""Pooling of any dimension. Gradients are sums over the windows that reach an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bridge.backends.tvm.compat import Expr, Size, dtype_of, extent, infinity, is_float, is_nan, number, shape_of, tirx
from bridge.backends.tvm.kernels import compute, pointwise, reduction
from bridge.backends.tvm.table import Accumulate, converts

aten = torch.ops.aten

NOWHERE = 2**62
"""A position behind every other."""


@converts(aten.max_pool2d_with_indices.default, symbolic=True)
def max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode, *, sizes):
    """ceil_mode shows in the sizes alone."""
    return max_pooled(x, 2, kernel_size, stride, padding, dilation, sizes[0])


@converts(aten.max_pool3d_with_indices.default, symbolic=True)
def max_pool3d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode, *, sizes):
    return max_pooled(x, 3, kernel_size, stride, padding, dilation, sizes[0])


@converts(aten.max_pool2d_with_indices_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def max_pool2d_backward(grad_output, x, kernel_size, stride, padding, dilation, ceil_mode, indices):
    return max_pool_gradient(grad_output, x, 2, kernel_size, stride, padding, dilation, indices)


@converts(aten.max_pool3d_with_indices_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def max_pool3d_backward(grad_output, x, kernel_size, stride, padding, dilation, ceil_mode, indices):
    return max_pool_gradient(grad_output, x, 3, kernel_size, stride, padding, dilation, indices)


@converts(aten.avg_pool1d.default, accumulate=Accumulate.OPMATH, symbolic=True)
def avg_pool1d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, *, sizes):
    return avg_pooled(x, Averaging(1, kernel_size, stride, padding, count_include_pad, None, shape_of(x)), sizes)


@converts(aten.avg_pool2d.default, accumulate=Accumulate.OPMATH, symbolic=True)
def avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, *, sizes):
    how = Averaging(2, kernel_size, stride, padding, count_include_pad, divisor_override, shape_of(x))
    return avg_pooled(x, how, sizes)


@converts(aten.avg_pool3d.default, accumulate=Accumulate.OPMATH, symbolic=True)
def avg_pool3d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, *, sizes):
    how = Averaging(3, kernel_size, stride, padding, count_include_pad, divisor_override, shape_of(x))
    return avg_pooled(x, how, sizes)


@converts(aten.avg_pool2d_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def avg_pool2d_backward(grad_output, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    how = Averaging(2, kernel_size, stride, padding, count_include_pad, divisor_override, shape_of(x))
    return avg_pool_gradient(grad_output, x, how)


@converts(aten.avg_pool3d_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def avg_pool3d_backward(grad_output, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    how = Averaging(3, kernel_size, stride, padding, count_include_pad, divisor_override, shape_of(x))
    return avg_pool_gradient(grad_output, x, how)


@converts(
    aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default, accumulate=Accumulate.OPMATH, symbolic=True
)
def adaptive_avg_pool(x, output_size, *, sizes):
    """Window o of O over I elements reaches from floor(o·I/O) to ceil((o+1)·I/O)."""
    dims = len(output_size)
    front, space = len(sizes) - dims, shape_of(x)[-dims:]
    longest = [widest(i, o) for i, o in zip(space, output_size, strict=True)]

    def corners(at):
        begins = [window_start(o, i, n) for o, i, n in zip(at[front:], space, output_size, strict=True)]
        return begins, [window_end(o, i, n) for o, i, n in zip(at[front:], space, output_size, strict=True)]

    def element(at, tap, v):
        begins, ends = corners(at)
        place = [b + t for b, t in zip(begins, tap, strict=True)]
        inside = tirx.all(*(p < e for p, e in zip(place, ends, strict=True)))
        return tirx.if_then_else(inside, v(*at[:front], *place), number(0, dtype_of(x)))

    def share(at, whole):
        return divided(whole(*at), count_of(*corners(at), dtype_of(x)))

    summed = reduction("window_sum", "sum", sizes, longest, element, x)
    return compute("adaptive_avg_pool", sizes, share, summed)


@converts(aten._adaptive_avg_pool2d_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def adaptive_avg_pool2d_backward(grad_output, x):
    return adaptive_gradient(grad_output, x, 2)


@converts(aten._adaptive_avg_pool3d_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def adaptive_avg_pool3d_backward(grad_output, x):
    return adaptive_gradient(grad_output, x, 3)


def adaptive_gradient(grad: Expr, x: Expr, dims: int) -> Expr:
    """For each element the windows over it, from the first that can reach it."""
    front, name = len(shape_of(x)) - dims, dtype_of(grad)
    space, windows = shape_of(x)[front:], shape_of(grad)[front:]
    reaching = [widest(w, i) for i, w in zip(space, windows, strict=True)]

    def element(at, over, g):
        firsts = [tirx.floordiv(i * w, n) for i, w, n in zip(at[front:], windows, space, strict=True)]
        stands = [f + o for f, o in zip(firsts, over, strict=True)]
        begins = [window_start(o, i, n) for o, i, n in zip(stands, space, windows, strict=True)]
        ends = [window_end(o, i, n) for o, i, n in zip(stands, space, windows, strict=True)]
        covers = [c for i, b, e in zip(at[front:], begins, ends, strict=True) for c in (i >= b, i < e)]
        inside = [o < n for o, n in zip(stands, windows, strict=True)]
        share = g(*at[:front], *stands) / count_of(begins, ends, name)
        return tirx.if_then_else(tirx.all(*covers, *inside), share, number(0, name))

    return reduction("adaptive_avg_pool_backward", "sum", shape_of(x), reaching, element, grad)


@converts(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default, symbolic=False)
def adaptive_max_pool(x, output_size, *, sizes):
    """As `max_pool`, over the windows of the adaptive average."""
    dims = len(output_size)
    front, space, name = len(sizes[0]) - dims, shape_of(x)[-dims:], dtype_of(x)
    longest = [widest(i, o) for i, o in zip(space, output_size, strict=True)]

    def place_of(at, tap):
        begins = [window_start(o, i, n) for o, i, n in zip(at[front:], space, output_size, strict=True)]
        ends = [window_end(o, i, n) for o, i, n in zip(at[front:], space, output_size, strict=True)]
        place = [b + t for b, t in zip(begins, tap, strict=True)]
        return place, tirx.all(*(p < e for p, e in zip(place, ends, strict=True)))

    def value(at, tap, v):
        place, inside = place_of(at, tap)
        return tirx.if_then_else(inside, v(*at[:front], *place), least(name))

    largest = reduction("adaptive_max_pool", "max", sizes[0], longest, value, x)

    def held(at, tap, v, top):
        place, inside = place_of(at, tap)
        return ranked(value(at, tap, v), top(*at), flat(place, space), inside)

    return largest, position_of(reduction("adaptive_max_position", "min", sizes[0], longest, held, x, largest))


class Averaging:
    """The windows of an average: where each begins and ends, and by how much it divides."""

    def __init__(self, dims: int, kernel, stride, padding, count_include_pad: bool, divisor, shape: list[Size]) -> None:
        self.dims = dims
        self.kernel, self.padding = spatial(kernel, dims), spatial(padding, dims)
        self.stride = spatial(stride, dims) if stride else self.kernel
        self.count_include_pad, self.divisor = count_include_pad, divisor
        self.space = shape[-dims:]

    def begins(self, at: Sequence[Expr]) -> list[Expr]:
        """The first element of the windows at a position, perhaps in front of the tensor."""
        return [o * s - p for o, s, p in zip(at, self.stride, self.padding, strict=True)]

    def divisor_at(self, at: Sequence[Expr], name: str) -> Expr:
        if self.divisor is not None:
            return number(self.divisor, name)
        begins = self.begins(at)
        ends = [tirx.min(b + k, extent(n) + p) for b, k, n, p in zip(begins, self.kernel, self.space, self.padding)]
        if not self.count_include_pad:
            begins = [tirx.max(b, extent(0)) for b in begins]
            ends = [tirx.min(e, extent(n)) for e, n in zip(ends, self.space, strict=True)]
        return count_of(begins, ends, name)


def avg_pooled(x: Expr, how: Averaging, sizes: Sequence[Size]) -> Expr:
    front = len(sizes) - how.dims

    def element(at, tap, v):
        place = [b + t for b, t in zip(how.begins(at[front:]), tap, strict=True)]
        return within(v, at[:front], place, how.space, number(0, dtype_of(x)))

    def share(at, whole):
        return divided(whole(*at), how.divisor_at(at[front:], dtype_of(x)))

    return compute("avg_pool", sizes, share, reduction("window_sum", "sum", sizes, how.kernel, element, x))


def avg_pool_gradient(grad: Expr, x: Expr, how: Averaging) -> Expr:
    """For each element the windows over it, counted back from the last that begins at it or before."""
    front, name = len(shape_of(x)) - how.dims, dtype_of(grad)
    windows = shape_of(grad)[front:]
    reaching = [-(-k // s) for k, s in zip(how.kernel, how.stride, strict=True)]

    def element(at, back, g):
        stands = [
            tirx.floordiv(i + p, s) - r for i, p, s, r in zip(at[front:], how.padding, how.stride, back, strict=True)
        ]
        ends = [b + k for b, k in zip(how.begins(stands), how.kernel, strict=True)]
        covers = [i < e for i, e in zip(at[front:], ends, strict=True)]
        inside = [c for o, n in zip(stands, windows, strict=True) for c in (o >= 0, o < extent(n))]
        share = g(*at[:front], *stands) / how.divisor_at(stands, name)
        return tirx.if_then_else(tirx.all(*covers, *inside), share, number(0, name))

    return reduction("avg_pool_backward", "sum", shape_of(x), reaching, element, grad)


def max_pooled(x: Expr, dims: int, kernel, stride, padding, dilation, sizes) -> tuple[Expr, Expr]:
    """The largest of each window, and its flat position in the plane: the first of equals, the last NaN."""
    kernel, padding, dilation = (spatial(v, dims) for v in (kernel, padding, dilation))
    stride = spatial(stride, dims) if stride else kernel
    front, space, name = len(sizes) - dims, shape_of(x)[-dims:], dtype_of(x)

    def source(at, tap):
        return [o * s - p + t * d for o, t, s, p, d in zip(at[front:], tap, stride, padding, dilation, strict=True)]

    def value(at, tap, v):
        return within(v, at[:front], source(at, tap), space, least(name))

    largest = reduction("max_pool", "max", sizes, kernel, value, x)

    def held(at, tap, v, top):
        place = source(at, tap)
        inside = [c for i, n in zip(place, space, strict=True) for c in (i >= 0, i < extent(n))]
        return ranked(value(at, tap, v), top(*at), flat(place, space), tirx.all(*inside))

    return largest, position_of(reduction("max_pool_position", "min", sizes, kernel, held, x, largest))


def ranked(found: Expr, top: Expr, place: Expr, inside: Expr) -> Expr:
    """Its place where an element is the largest. A NaN's is below zero, so that the least is the last NaN's."""
    nowhere = tirx.const(NOWHERE, "int64")
    at_a_nan = tirx.Select(tirx.And(is_nan(found), inside), -place - 1, nowhere)
    return tirx.Select(tirx.And(found == top, inside), place, at_a_nan)


def position_of(rank: Expr) -> Expr:
    return pointwise("position", lambda r: tirx.Select(r < number(0, r), -r - 1, r), rank)


def max_pool_gradient(grad: Expr, x: Expr, dims: int, kernel, stride, padding, dilation, indices: Expr) -> Expr:
    """For each element the windows over it whose largest element it is."""
    kernel, padding, dilation = (spatial(v, dims) for v in (kernel, padding, dilation))
    stride = spatial(stride, dims) if stride else kernel
    front, space = len(shape_of(x)) - dims, shape_of(x)[-dims:]
    windows, name = shape_of(grad)[front:], dtype_of(grad)
    reaching = [((k - 1) * d) // s + 1 for k, d, s in zip(kernel, dilation, stride, strict=True)]

    def element(at, back, g, chosen):
        own = flat(at[front:], space)
        stands = [tirx.floordiv(i + p, s) - r for i, p, s, r in zip(at[front:], padding, stride, back, strict=True)]
        inside = [c for o, n in zip(stands, windows, strict=True) for c in (o >= 0, o < extent(n))]
        place = (*at[:front], *stands)
        share = tirx.Select(chosen(*place).equal(own), g(*place), number(0, name))
        return tirx.if_then_else(tirx.all(*inside), share, number(0, name))

    return reduction("max_pool_backward", "sum", shape_of(x), reaching, element, grad, indices)


def spatial(value, dims: int) -> list[int]:
    """One number for each dimension of space; a single one stands for all."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


def within(v, front, place: Sequence[Expr], space: Sequence[Size], otherwise: Expr) -> Expr:
    """One element; beyond the edges nothing is read."""
    inside = [c for i, n in zip(place, space, strict=True) for c in (i >= 0, i < extent(n))]
    return tirx.if_then_else(tirx.all(*inside), v(*front, *place), otherwise)


def least(name: str) -> Expr:
    """What loses against every element of a type."""
    return -infinity(number(0, name)) if is_float(name) else tirx.min_value(name)


def flat(place: Sequence[Expr], space: Sequence[Size]) -> Expr:
    """The position of an element in its plane, counted row by row."""
    position: Expr = extent(0)
    for i, n in zip(place, space, strict=True):
        position = position * extent(n) + i
    return position


def divided(a: Expr, b: Expr) -> Expr:
    """Integers are cut off."""
    return a / b if is_float(a) else tirx.truncdiv(a, b)


def count_of(begins: Sequence[Expr], ends: Sequence[Expr], name: str) -> Expr:
    """How many elements lie between corners, as a number of a type."""
    count: Expr = extent(1)
    for b, e in zip(begins, ends, strict=True):
        count = count * (e - b)
    return count.astype(name)


def window_start(o: Expr, size: int, windows: int) -> Expr:
    return tirx.floordiv(o * size, windows)


def window_end(o: Expr, size: int, windows: int) -> Expr:
    return tirx.floordiv((o + 1) * size + windows - 1, windows)


def widest(size: Any, windows: Any) -> Any:
    """The length of the longest window, or where sizes are symbols what none is longer than."""
    if not (isinstance(size, int) and isinstance(windows, int)):
        return tirx.floordiv(size, windows) + 2
    return size // windows if size % windows == 0 else size // windows + 2
