"""Convolution of any dimension, plain and transposed, and its gradient: sums over what each element reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bridge.backends.tvm.compat import Expr, R, Size, dtype_of, extent, number, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import binary, reduction
from bridge.backends.tvm.ops.pooling import spatial
from bridge.backends.tvm.table import Accumulate, converts

aten = torch.ops.aten


@converts(aten.convolution.default, accumulate=Accumulate.OPMATH, symbolic=True)
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, sizes):
    """output_padding shows in the sizes alone."""
    how = spread if transposed else correlate
    made = how(input, weight, sizes, Window(len(sizes) - 2, stride, padding, dilation, groups))
    if bias is None:
        return made
    return binary(R.add, made, reshaped(bias, [shape_of(bias)[0], *(1 for _ in sizes[2:])]))


@converts(aten.convolution_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def convolution_backward(
    grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
):
    """The gradient of a plain convolution's input is a transposed one's result, and the other way round."""
    want_x, want_w, want_b = output_mask
    window = Window(len(shape_of(input)) - 2, stride, padding, dilation, groups)
    dx = dw = db = None
    if want_x:
        dx = (correlate if transposed else spread)(grad_output, weight, shape_of(input), window)
    if want_w:
        small, large = (input, grad_output) if transposed else (grad_output, input)
        dw = of_weight(small, large, shape_of(weight), window)
    if want_b:
        batch, channels, *space = shape_of(grad_output)
        over = [batch, *space]
        db = reduction("bias_gradient", "sum", [channels], over, lambda at, r, g: g(r[0], at[0], *r[1:]), grad_output)
    return dx, dw, db


class Window:
    """How a kernel slides: each number for every dimension of space, and the groups that channels fall into."""

    def __init__(self, dims: int, stride, padding, dilation, groups: int) -> None:
        self.stride, self.padding, self.dilation = (spatial(v, dims) for v in (stride, padding, dilation))
        self.groups = groups

    def read(self, out: Sequence[Expr], tap: Sequence[Expr]) -> list[Expr]:
        """Where the tap of the kernel that stands at `out` reads."""
        parts = zip(out, tap, self.stride, self.padding, self.dilation, strict=True)
        return [o * s - p + t * d for o, t, s, p, d in parts]

    def standing(self, read: Sequence[Expr], tap: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        """Where the kernel stands whose tap reads at `read`, and under which conditions it stands anywhere."""
        reached = [r + p - t * d for r, t, p, d in zip(read, tap, self.padding, self.dilation, strict=True)]
        stands = [tirx.floordiv(r, s) if s != 1 else r for r, s in zip(reached, self.stride, strict=True)]
        exact = [tirx.floormod(r, s).equal(extent(0)) for r, s in zip(reached, self.stride, strict=True) if s != 1]
        return stands, exact


def correlate(x: Expr, weight: Expr, sizes: Sequence[Size], window: Window) -> Expr:
    """x of (N, G·C, ...) with weight of (O, C, ...): each result is a sum over C channels and the taps."""
    space = shape_of(x)[2:]
    out_channels, in_group, *taps = shape_of(weight)
    group_of = grouped(out_channels, window.groups)

    def element(at, over, v, w):
        (n, o, *place), (c, *tap) = at, over
        source = window.read(place, tap)
        value = guarded(v, (n, group_of(o) * in_group + c), source, space, dtype_of(x))
        return value * w(o, c, *tap)

    return reduction("convolution", "sum", sizes, [in_group, *taps], element, x, weight)


def spread(x: Expr, weight: Expr, sizes: Sequence[Size], window: Window) -> Expr:
    """x of (N, G·A, ...) with weight of (G·A, B, ...) to (N, G·B, ...): each result sums the taps that reach it."""
    space = shape_of(x)[2:]
    all_in, out_group, *taps = shape_of(weight)
    in_group = all_in // window.groups
    group_of = grouped(sizes[1], window.groups)

    def element(at, over, v, w):
        (n, b, *place), (a, *tap) = at, over
        stands, exact = window.standing(place, tap)
        channel = group_of(b) * in_group + a
        reached = tirx.all(*exact, *within(stands, space))
        product = v(n, channel, *stands) * w(channel, b - group_of(b) * out_group, *tap)
        return tirx.if_then_else(reached, product, number(0, dtype_of(x)))

    return reduction("transposed_convolution", "sum", sizes, [in_group, *taps], element, x, weight)


def of_weight(small: Expr, large: Expr, sizes: Sequence[Size], window: Window) -> Expr:
    """The gradient of the weight (A, B, ...): the sum over samples and places of small (N, A, ...) times large."""
    batch, channels, *places = shape_of(small)
    space = shape_of(large)[2:]
    group_of = grouped(channels, window.groups)

    def element(at, over, s, v):
        (a, b, *tap), (n, *place) = at, over
        source = window.read(place, tap)
        value = guarded(v, (n, group_of(a) * sizes[1] + b), source, space, dtype_of(large))
        return s(n, a, *place) * value

    return reduction("weight_gradient", "sum", sizes, [batch, *places], element, small, large)


def grouped(channels: Size, groups: int):
    """From a channel to its group."""
    return lambda c: extent(0) if groups == 1 else tirx.floordiv(c, channels // groups)


def guarded(v, front, place: Sequence[Expr], space: Sequence[Size], name: str) -> Expr:
    """One element, 0 beyond the edges; nothing is read there."""
    return tirx.if_then_else(tirx.all(*within(place, space)), v(*front, *place), number(0, name))


def within(place: Sequence[Expr], space: Sequence[Size]) -> list[Expr]:
    """The conditions under which a place lies in a space."""
    return [c for i, n in zip(place, space, strict=True) for c in (i >= 0, i < extent(n))]
