"""Layer, group and batch normalisation and their gradients: sums in float32 or wider, variances in two passes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bridge.backends.tvm.compat import (
    Expr,
    R,
    Size,
    converted,
    dtype_of,
    number,
    reshaped,
    shape_of,
    size_product,
    tirx,
)
from bridge.backends.tvm.kernels import binary, pointwise, reduced
from bridge.backends.tvm.ops.reduction import average, total
from bridge.backends.tvm.table import Accumulate, converts

aten = torch.ops.aten


@converts(aten.native_layer_norm.default, accumulate=Accumulate.OPMATH, symbolic=True)
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    dims = last(input, len(normalized_shape))
    mean, rstd = moments(input, dims, eps)
    return scaled(normalised(input, mean, rstd), weight, bias), mean, rstd


@converts(aten.native_layer_norm_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    dims = last(input, len(normalized_shape))
    outer = [d for d in range(len(shape_of(input))) if d not in dims]
    want_x, want_w, want_b = output_mask
    dx = dw = db = None
    if want_x:
        dx = of_input(grad_out if weight is None else binary(R.multiply, grad_out, weight), input, mean, rstd, dims)
    if want_w:
        dw = reduced("dweight", "sum", times_normalised, [grad_out, input, mean, rstd], outer, False)
    if want_b:
        db = reduced("dbias", "sum", lambda g: g, grad_out, outer, False)
    return dx, dw, db


@converts(aten.native_group_norm.default, accumulate=Accumulate.OPMATH, symbolic=True)
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    shape = shape_of(input)
    grouped = reshaped(input, [N, group, C // group, HxW])
    mean, rstd = moments(grouped, [2, 3], eps)
    made = reshaped(normalised(grouped, mean, rstd), shape)
    made = scaled(made, channelwise(weight, len(shape)), channelwise(bias, len(shape)))
    return made, reshaped(mean, [N, group]), reshaped(rstd, [N, group])


@converts(aten.native_group_norm_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    want_x, want_w, want_b = output_mask
    split = [N, group, C // group, HxW]
    grad, x = reshaped(grad_out, split), reshaped(input, split)
    mean, rstd = reshaped(mean, [N, group, 1, 1]), reshaped(rstd, [N, group, 1, 1])
    dx = dw = db = None
    if want_x:
        scaled_grad = grad if weight is None else binary(R.multiply, grad, reshaped(weight, [1, group, C // group, 1]))
        dx = reshaped(of_input(scaled_grad, x, mean, rstd, [2, 3]), shape_of(input))
    if want_w:
        dw = reshaped(reduced("dweight", "sum", times_normalised, [grad, x, mean, rstd], [0, 3], False), [C])
    if want_b:
        db = reshaped(total(grad, [0, 3], False), [C])
    return dx, dw, db


@converts(aten._native_batch_norm_legit_functional.default, accumulate=Accumulate.OPMATH, symbolic=True)
def batch_norm_functional(input, weight, bias, running_mean, running_var, training, momentum, eps, *, sizes):
    if not training:
        made = by_running(input, weight, bias, running_mean, running_var, eps)
        return made, *nothing_saved(input, sizes), running_mean, running_var
    made, mean, rstd, variance = by_batch(input, weight, bias, eps)
    count = size_product([n for d, n in enumerate(shape_of(input)) if d != 1])

    def moved(old, new):
        return old * number(1 - momentum, old) + new * number(momentum, old)

    def unbiased(old, new):
        n = converted(count, str(new.ty.dtype))
        return moved(old, new * (n / (n - number(1, n))))

    running_mean = pointwise("running_mean", moved, running_mean, mean)
    return made, mean, rstd, running_mean, pointwise("running_var", unbiased, running_var, variance)


@converts(aten._batch_norm_with_update_functional.default, accumulate=Accumulate.OPMATH, symbolic=True)
def batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps, *, sizes):
    """The fourth result is room that only other devices use."""
    made = batch_norm_functional(input, weight, bias, running_mean, running_var, True, momentum, eps, sizes=sizes)
    return *made[:3], R.zeros(sizes[3], "uint8"), *made[3:]


@converts(aten._native_batch_norm_legit.no_stats, accumulate=Accumulate.OPMATH, symbolic=True)
def batch_norm_no_stats(input, weight, bias, training, momentum, eps):
    """Without running statistics those of the batch are all there are."""
    return by_batch(input, weight, bias, eps)[:3]


@converts(aten._native_batch_norm_legit_no_training.default, accumulate=Accumulate.OPMATH, symbolic=True)
def batch_norm_no_training(input, weight, bias, running_mean, running_var, momentum, eps, *, sizes):
    return by_running(input, weight, bias, running_mean, running_var, eps), *nothing_saved(input, sizes)


@converts(aten.native_batch_norm_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def native_batch_norm_backward(
    grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
):
    want_x, want_w, want_b = output_mask
    rank = len(shape_of(input))
    if train:
        mean, rstd = save_mean, save_invstd
    else:
        mean, rstd = running_mean, inverse_root(running_var, eps)
    mean, rstd = channelwise(mean, rank), channelwise(rstd, rank)
    dims = [d for d in range(rank) if d != 1]
    dx = dw = db = None
    if want_w or (want_x and train):
        dw = reduced("dweight", "sum", times_normalised, [grad_out, input, mean, rstd], dims, False)
    if want_b or (want_x and train):
        db = total(grad_out, dims, False)
    if want_x:
        dx = of_input_by_sums(grad_out, input, mean, rstd, dw, db) if train else binary(R.multiply, grad_out, rstd)
        dx = scaled(dx, channelwise(weight, rank), None)
    return dx, dw if want_w else None, db if want_b else None


@converts(aten.batch_norm_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def batch_norm_backward(
    grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask, reserve
):
    return native_batch_norm_backward(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


@converts(aten._weight_norm_interface.default, accumulate=Accumulate.OPMATH, symbolic=True)
def weight_norm(v, g, dim):
    """The direction of v with the length g, for each slice of the first or the last dimension; and v's own length."""
    norm = R.sqrt(reduced("square_sum", "sum", lambda e: e * e, v, all_but(v, dim), True))
    return pointwise("weight_norm", lambda e, length, n: e * (length / n), v, g, norm), norm


@converts(aten._weight_norm_interface_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def weight_norm_backward(grad_w, saved_v, saved_g, saved_norms, dim):
    along = reduced("along", "sum", lambda d, e: d * e, [grad_w, saved_v], all_but(saved_v, dim), True)

    def of_v(d, e, length, n, a):
        return (length / n) * (d - e * (a / (n * n)))

    return pointwise("dv", of_v, grad_w, saved_v, saved_g, saved_norms, along), binary(R.divide, along, saved_norms)


def all_but(x: Expr, dim: int) -> list[int]:
    rank = len(shape_of(x))
    return [d for d in range(rank) if d != dim % rank]


def by_batch(input: Expr, weight: Expr | None, bias: Expr | None, eps: float) -> tuple[Expr, Expr, Expr, Expr]:
    """The result, and the batch's mean, inverse deviation and variance, a number for each channel."""
    rank = len(shape_of(input))
    dims = [d for d in range(rank) if d != 1]
    mean = average(input, dims, True)
    variance = average(squared_difference(input, mean), dims, True)
    rstd = inverse_root(variance, eps)
    made = scaled(normalised(input, mean, rstd), channelwise(weight, rank), channelwise(bias, rank))
    channels = [shape_of(input)[1]]
    return made, reshaped(mean, channels), reshaped(rstd, channels), reshaped(variance, channels)


def by_running(input: Expr, weight, bias, running_mean: Expr, running_var: Expr, eps: float) -> Expr:
    rank = len(shape_of(input))
    mean, rstd = channelwise(running_mean, rank), channelwise(inverse_root(running_var, eps), rank)
    return scaled(normalised(input, mean, rstd), channelwise(weight, rank), channelwise(bias, rank))


def nothing_saved(input: Expr, sizes: Sequence[Sequence[Size]]) -> tuple[Expr, Expr]:
    """The empty statistics that torch gives where nothing is trained."""
    return tuple(R.zeros(shape, dtype_of(input)) for shape in sizes[1:3])  # type: ignore[return-value]


def moments(x: Expr, dims: Sequence[int], eps: float) -> tuple[Expr, Expr]:
    """The mean and the inverse deviation over dimensions, which stay with size 1."""
    mean = average(x, list(dims), True)
    return mean, inverse_root(average(squared_difference(x, mean), list(dims), True), eps)


def squared_difference(x: Expr, mean: Expr) -> Expr:
    return pointwise("squared_difference", lambda v, m: (v - m) * (v - m), x, mean)


def inverse_root(variance: Expr, eps: float) -> Expr:
    return pointwise("inverse_root", lambda v: number(1, v) / tirx.sqrt(v + number(eps, v)), variance)


def normalised(x: Expr, mean: Expr, rstd: Expr) -> Expr:
    return pointwise("normalised", lambda v, m, r: (v - m) * r, x, mean, rstd)


def times_normalised(grad: Expr, v: Expr, m: Expr, r: Expr) -> Expr:
    return grad * (v - m) * r


def of_input(grad: Expr, x: Expr, mean: Expr, rstd: Expr, dims: Sequence[int]) -> Expr:
    """The gradient through mean and deviation: what is left of the gradient without its mean and its part along x."""
    share = average(grad, list(dims), True)
    along = pointwise("times_normalised", times_normalised, grad, x, mean, rstd)
    along = average(along, list(dims), True)
    return pointwise("dinput", left_of_gradient, grad, x, mean, rstd, share, along)


def of_input_by_sums(grad: Expr, x: Expr, mean: Expr, rstd: Expr, along: Expr, share: Expr) -> Expr:
    """The same before a weight of each channel, by sums over all that is not a channel, of which weights want two."""
    shape = shape_of(x)
    n = converted(size_product([n for d, n in enumerate(shape) if d != 1]), dtype_of(share))
    means = (channelwise(pointwise("mean", lambda v: v / n, sums), len(shape)) for sums in (share, along))
    return pointwise("dinput", left_of_gradient, grad, x, mean, rstd, *means)


def left_of_gradient(g: Expr, v: Expr, m: Expr, r: Expr, share: Expr, along: Expr) -> Expr:
    return r * (g - share - (v - m) * r * along)


def scaled(x: Expr, weight: Expr | None, bias: Expr | None) -> Expr:
    if weight is not None:
        x = binary(R.multiply, x, weight)
    return x if bias is None else binary(R.add, x, bias)


def channelwise(x: Expr | None, rank: int) -> Expr | None:
    """One number for each channel, as a tensor that is broadcast against (N, C, ...)."""
    return None if x is None else reshaped(x, [shape_of(x)[0], *(1 for _ in range(rank - 2))])


def last(x: Expr, count: int) -> list[int]:
    rank = len(shape_of(x))
    return list(range(rank - count, rank))
