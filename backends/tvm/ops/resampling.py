"""Reading an image between its elements: grid sampling in two dimensions, and its gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    Size,
    dtype_of,
    extent,
    is_nan,
    larger,
    number,
    reshaped,
    shape_of,
    smaller,
    tirx,
)
from bridge.backends.tvm.kernels import binary, compute, loops, nest, reduction, store
from bridge.backends.tvm.table import Accumulate, converts

aten = torch.ops.aten

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER = 0, 1

CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""The four elements around a place: whether the lower and the right one of each pair."""


def only_simple(interpolation_mode, padding_mode):
    if interpolation_mode not in (BILINEAR, NEAREST) or padding_mode not in (ZEROS, BORDER):
        return f"interpolation_mode={interpolation_mode} with padding_mode={padding_mode}"


@converts(aten.grid_sampler_2d.default, accumulate=Accumulate.OPMATH, refuses=only_simple, symbolic=True)
def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    batch, channels, height, width = shape_of(input)
    _, rows, columns, _ = shape_of(grid)
    how = Sampling(height, width, padding_mode, align_corners)

    def element(at, v, ys, xs):
        n, c, row, column = at
        y, x = ys(n, row, column), xs(n, row, column)
        if interpolation_mode == NEAREST:
            return how.read(v, n, c, tirx.nearbyint(y), tirx.nearbyint(x))
        value = number(0, y)
        for down, right in CORNERS:
            top, left = tirx.floor(y) + number(down, y), tirx.floor(x) + number(right, x)
            value = value + how.read(v, n, c, top, left) * share(y, top) * share(x, left)
        return value

    return compute("grid_sampler", [batch, channels, rows, columns], element, input, *how.places(grid))


@converts(aten.grid_sampler_2d_backward.default, accumulate=Accumulate.OPMATH, refuses=only_simple, symbolic=True)
def grid_sampler_2d_backward(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask):
    want_input, want_grid = output_mask
    how = Sampling(shape_of(input)[2], shape_of(input)[3], padding_mode, align_corners)
    dinput = of_input(grad_output, input, grid, interpolation_mode, how) if want_input else None
    dgrid = of_grid(grad_output, input, grid, interpolation_mode, how) if want_grid else None
    return dinput, dgrid


class Sampling:
    """From a grid's -1 … 1 to elements of an image, and what lies outside of it."""

    def __init__(self, height: Size, width: Size, padding_mode: int, align_corners: bool) -> None:
        self.sizes = (height, width)
        self.padding_mode, self.align_corners = padding_mode, align_corners

    def places(self, grid: Expr) -> tuple[Expr, Expr]:
        """The rows and columns of the image that the grid points to, between elements as a rule."""
        return self.along("grid_row", grid, 1, self.place), self.along("grid_column", grid, 0, self.place)

    def slopes(self, grid: Expr) -> tuple[Expr, Expr]:
        """How fast rows and columns move with the grid's numbers."""
        return self.along("row_slope", grid, 1, self.slope), self.along("column_slope", grid, 0, self.slope)

    def along(self, name: str, grid: Expr, which: int, how: Callable[[Expr, Size], Expr]) -> Expr:
        """A number for each place of the grid, from one of the two that it holds: columns first, then rows."""
        return compute(name, shape_of(grid)[:3], lambda at, g: how(g(*at, which), self.sizes[1 - which]), grid)

    def place(self, v: Expr, size: Size) -> Expr:
        free = self.unclipped(v, size)
        if self.padding_mode == ZEROS:
            return free
        free = tirx.Select(is_nan(free), number(0, v), free)
        return smaller(larger(free, number(0, v)), self.counted(v, size) - number(1, v))

    def unclipped(self, v: Expr, size: Size) -> Expr:
        one, count = number(1, v), self.counted(v, size)
        if self.align_corners:
            return (v + one) * number(0.5, v) * (count - one)
        return ((v + one) * count - one) * number(0.5, v)

    def slope(self, v: Expr, size: Size) -> Expr:
        """Nothing where the place is held at the border."""
        count = self.counted(v, size)
        speed = (count - number(1, v) if self.align_corners else count) * number(0.5, v)
        if self.padding_mode == ZEROS:
            return speed
        free = self.unclipped(v, size)
        moves = tirx.And(free > number(0, v), free < count - number(1, v))
        return tirx.Select(moves, speed, number(0, v))

    def counted(self, v: Expr, size: Size) -> Expr:
        return extent(size).astype(v.ty.dtype)

    def inside(self, y: Expr, x: Expr) -> Expr:
        bounds = [(v >= number(0, v), v < self.counted(v, n)) for v, n in zip((y, x), self.sizes)]
        return tirx.all(*(condition for pair in bounds for condition in pair))

    def held(self, y: Expr, x: Expr) -> tuple[Expr, Expr]:
        """The nearest positions that can be read without harm."""
        return tuple(  # type: ignore[return-value]
            tirx.max(tirx.min(v, self.counted(v, n) - number(1, v)), number(0, v)).astype("int64")
            for v, n in zip((y, x), self.sizes)
        )

    def read(self, image: Callable[..., Expr], n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        """An element of the image, 0 outside."""
        return tirx.Select(self.inside(y, x), image(n, c, *self.held(y, x)), number(0, y))


def share(place: Expr, corner: Expr) -> Expr:
    """How much of an element counts: less the farther it lies."""
    return number(1, place) - tirx.abs(place - corner)


def of_input(grad: Expr, input: Expr, grid: Expr, mode: int, how: Sampling) -> Expr:
    """Each gradient goes to the elements that were read."""
    shape, name = shape_of(input), dtype_of(input)

    def body(out, gradient, ys, xs):
        nest(shape, lambda place: store(out, place, number(0, name)))

        def spread(place, top, left, part):
            n, c, row, column = place
            value = tirx.Select(how.inside(top, left), gradient[n, c, row, column] * part, number(0, name))
            target = (n, c, *how.held(top, left))
            store(out, target, out[target] + value)

        def at(place):
            n, _, row, column = place
            y, x = ys[n, row, column], xs[n, row, column]
            if mode == NEAREST:
                spread(place, tirx.nearbyint(y), tirx.nearbyint(x), number(1, name))
                return
            for down, right in CORNERS:
                top, left = tirx.floor(y) + number(down, y), tirx.floor(x) + number(right, x)
                spread(place, top, left, share(y, top) * share(x, left))

        nest(shape_of(grad), at)

    return loops("grid_sampler_input", [(shape, name)], body, grad, *how.places(grid))[0]


def of_grid(grad: Expr, input: Expr, grid: Expr, mode: int, how: Sampling) -> Expr:
    """How the sample changes along columns and rows, summed over channels; nothing for the nearest element."""
    if mode == NEAREST:
        return R.zeros(shape_of(grid), dtype_of(grad))
    channels, shape = shape_of(input)[1], shape_of(grid)[:3]

    def moved_along(rows: bool):
        def element(at, over, g, v, ys, xs):
            (n, row, column), (c,) = at, over
            y, x = ys(*at), xs(*at)
            value = number(0, y)
            for down, right in CORNERS:
                top, left = tirx.floor(y) + number(down, y), tirx.floor(x) + number(right, x)
                weight = share(x, left) if rows else share(y, top)
                forward = down if rows else right
                value = value + how.read(v, n, c, top, left) * weight * number(1 if forward else -1, y)
            return g(n, c, row, column) * value

        name = "moved_along_rows" if rows else "moved_along_columns"
        return reduction(name, "sum", shape, [channels], element, grad, input, *how.places(grid))

    along_y, along_x = (binary(R.multiply, moved_along(d == 0), slope) for d, slope in enumerate(how.slopes(grid)))
    pair = [*shape, 1]
    return R.concat([reshaped(along_x, pair), reshaped(along_y, pair)], axis=3)
