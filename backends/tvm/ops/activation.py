"""Activations and their gradients, and softmax with its own."""

from __future__ import annotations

import math

import torch

from bridge.backends.tvm.compat import Expr, c_function, number, shape_of, tirx
from bridge.backends.tvm.kernels import pointwise, reduced
from bridge.backends.tvm.ops.reduction import extreme, total
from bridge.backends.tvm.ops.unary import exp_minus_one
from bridge.backends.tvm.table import Accumulate, Promote, converts
from bridge.ir.shapes import positive

aten = torch.ops.aten


@converts(aten.relu.default, promote=Promote.NO_OPMATH, symbolic=True)
def relu(x):
    """A NaN stays one."""
    return pointwise("relu", lambda v: tirx.Select(v < number(0, v), number(0, v), v), x)


@converts(aten.threshold_backward.default, promote=Promote.NO_OPMATH, symbolic=True)
def threshold_backward(grad_output, x, threshold):
    """No gradient at the threshold itself; all of it at a NaN."""
    return pointwise(
        "threshold_backward", lambda g, v: tirx.Select(v <= number(threshold, v), number(0, g), g), grad_output, x
    )


@converts(aten.rrelu_with_noise_backward.default, promote=Promote.DEFAULT, symbolic=True)
def rrelu_with_noise_backward(grad_output, x, noise, lower, upper, training, self_is_result):
    """The noise is the slope that was drawn; outside of training the slope lies in the middle."""
    if training and upper - lower > 1e-6:
        return pointwise("rrelu_backward", lambda g, n: g * n, grad_output, noise)
    return leaky_relu_backward(grad_output, x, (lower + upper) / 2, self_is_result)


@converts(aten.leaky_relu.default, promote=Promote.DEFAULT, symbolic=True)
def leaky_relu(x, negative_slope):
    return pointwise("leaky_relu", lambda v: tirx.Select(v > number(0, v), v, v * number(negative_slope, v)), x)


@converts(aten.leaky_relu_backward.default, promote=Promote.DEFAULT, symbolic=True)
def leaky_relu_backward(grad_output, x, negative_slope, self_is_result):
    def element(g, v):
        return tirx.Select(v > number(0, v), g, g * number(negative_slope, g))

    return pointwise("leaky_relu_backward", element, grad_output, x)


@converts(aten.hardtanh.default, promote=Promote.NO_OPMATH, symbolic=True)
def hardtanh(x, min_val, max_val):
    def element(v):
        low, high = number(min_val, v), number(max_val, v)
        return tirx.Select(v < low, low, tirx.Select(v > high, high, v))

    return pointwise("hardtanh", element, x)


@converts(aten.hardtanh_backward.default, promote=Promote.NO_OPMATH, symbolic=True)
def hardtanh_backward(grad_output, x, min_val, max_val):
    """No gradient at the bounds themselves; all of it at a NaN, where torch's loop over vectors alone gives none."""

    def element(g, v):
        outside = tirx.Or(v <= number(min_val, v), v >= number(max_val, v))
        return tirx.Select(outside, number(0, g), g)

    return pointwise("hardtanh_backward", element, grad_output, x)


@converts(aten.elu.default, promote=Promote.DEFAULT, symbolic=True)
def elu(x, alpha, scale, input_scale):
    def element(v):
        below = number(alpha * scale, v) * exp_minus_one(v * number(input_scale, v))
        return tirx.Select(v > number(0, v), v * number(scale, v), below)

    return pointwise("elu", element, x)


@converts(aten.elu_backward.default, promote=Promote.DEFAULT, symbolic=True)
def elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result):
    def element(g, v):
        slope = number(alpha * scale * input_scale, v)
        if is_result:
            below = g * number(input_scale, v) * (v + number(alpha * scale, v))
        else:
            below = g * slope * tirx.exp(v * number(input_scale, v))
        return tirx.Select(v <= number(0, v), below, g * number(scale, v))

    return pointwise("elu_backward", element, grad_output, self_or_result)


@converts(aten.gelu.default, promote=Promote.DEFAULT, symbolic=True)
def gelu(x, approximate):
    def element(v):
        half = number(0.5, v)
        if approximate == "tanh":
            return half * v * (number(1, v) + tirx.tanh(inner(v)))
        return half * v * (number(1, v) + tirx.erf(v * number(math.sqrt(0.5), v)))

    return pointwise("gelu", element, x)


@converts(aten.gelu_backward.default, promote=Promote.DEFAULT, symbolic=True)
def gelu_backward(grad_output, x, approximate):
    def by_tanh(g, v):
        half, one = number(0.5, v), number(1, v)
        bent = tirx.tanh(inner(v))
        slope = number(math.sqrt(2 / math.pi), v) * (one + number(3 * 0.044715, v) * v * v)
        return g * (half * (one + bent) + half * v * (one - bent * bent) * slope)

    def by_erf(g, v):
        half, one = number(0.5, v), number(1, v)
        below = half * (one + tirx.erf(v * number(math.sqrt(0.5), v)))
        density = tirx.exp(v * v * number(-0.5, v)) * number(1 / math.sqrt(2 * math.pi), v)
        return g * (below + v * density)

    return pointwise("gelu_backward", by_tanh if approximate == "tanh" else by_erf, grad_output, x)


@converts(aten.silu.default, promote=Promote.INT_TO_FLOAT, symbolic=True)
def silu(x):
    return pointwise("silu", lambda v: v / (number(1, v) + tirx.exp(v * number(-1, v))), x)


@converts(aten.silu_backward.default, promote=Promote.DEFAULT, symbolic=True)
def silu_backward(grad_output, x):
    def element(g, v):
        one = number(1, v)
        s = one / (one + tirx.exp(v * number(-1, v)))
        return g * s * (one + v * (one - s))

    return pointwise("silu_backward", element, grad_output, x)


@converts(aten.sigmoid_backward.default, promote=Promote.DEFAULT, symbolic=True)
def sigmoid_backward(grad_output, output):
    return pointwise("sigmoid_backward", lambda g, y: g * (number(1, y) - y) * y, grad_output, output)


@converts(aten.tanh_backward.default, promote=Promote.DEFAULT, symbolic=True)
def tanh_backward(grad_output, output):
    return pointwise("tanh_backward", lambda g, y: g * (number(1, y) - y * y), grad_output, output)


@converts(aten.softplus.default, promote=Promote.DEFAULT, symbolic=True)
def softplus(x, beta, threshold):
    """Linear above the threshold."""

    def element(v):
        z = v * number(beta, v)
        return tirx.Select(z > number(threshold, v), v, c_function("log1p", tirx.exp(z)) / number(beta, v))

    return pointwise("softplus", element, x)


@converts(aten.softplus_backward.default, promote=Promote.DEFAULT, symbolic=True)
def softplus_backward(grad_output, x, beta, threshold):
    def element(g, v):
        power = tirx.exp(v * number(beta, v))
        return tirx.Select(v * number(beta, v) > number(threshold, v), g, g * power / (power + number(1, v)))

    return pointwise("softplus_backward", element, grad_output, x)


@converts(aten._softmax.default, accumulate=Accumulate.OPMATH, symbolic=True)
def softmax(x, dim, half_to_float):
    powers = shifted_exp(x, extreme("max", x, dim, True))
    return pointwise("softmax", lambda v, whole: v / whole, powers, total(powers, dim, True))


@converts(aten._log_softmax.default, accumulate=Accumulate.OPMATH, symbolic=True)
def log_softmax(x, dim, half_to_float):
    top = extreme("max", x, dim, True)
    whole = total(shifted_exp(x, top), dim, True)
    return pointwise("log_softmax", lambda v, m, s: v - m - tirx.log(s), x, top, whole)


@converts(aten._softmax_backward_data.default, accumulate=Accumulate.OPMATH, symbolic=True)
def softmax_backward(grad_output, output, dim, input_dtype):
    inside = reduced("softmax_dot", "sum", lambda g, y: g * y, [grad_output, output], along(output, dim), True)
    return pointwise("softmax_backward", lambda g, y, s: y * (g - s), grad_output, output, inside)


@converts(aten._log_softmax_backward_data.default, accumulate=Accumulate.OPMATH, symbolic=True)
def log_softmax_backward(grad_output, output, dim, input_dtype):
    whole = reduced("gradient_sum", "sum", lambda g: g, grad_output, along(output, dim), True)
    return pointwise("log_softmax_backward", lambda g, y, s: g - tirx.exp(y) * s, grad_output, output, whole)


def shifted_exp(x: Expr, top: Expr) -> Expr:
    return pointwise("shifted_exp", lambda v, m: tirx.exp(v - m), x, top)


def along(x: Expr, dim: int) -> list[int]:
    """The dimension counted from the front; none of a 0-d tensor."""
    rank = len(shape_of(x))
    return [positive(dim, rank)] if rank else []


def inner(v: Expr) -> Expr:
    """The argument of tanh in the approximation of gelu."""
    return number(math.sqrt(2 / math.pi), v) * (v + number(0.044715, v) * v * v * v)
