"""The negative log-likelihood of classes, and its gradient."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import Expr, R, dtype_of, extent, number, shape_of, tirx
from bridge.backends.tvm.kernels import binary, compute, pointwise
from bridge.backends.tvm.ops.indexing import held_inside, inside_of, poison
from bridge.backends.tvm.ops.reduction import total
from bridge.backends.tvm.table import Accumulate, converts

aten = torch.ops.aten

NONE, MEAN, SUM = 0, 1, 2
"""How losses are put together, by torch's numbers."""


@converts(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def nll_loss_forward(x, target, weight, reduction, ignore_index, *, sizes):
    """The total weight of many samples is 0 where losses are not put together, as in torch."""
    shares = weights(x, target, weight, ignore_index)
    losses = pointwise("nll_loss", negated_share, chosen(x, target, ignore_index), shares)
    if reduction == NONE:
        return losses, shares if class_dim(x) == 0 else R.zeros(sizes[1], dtype_of(x))
    whole = total(shares, None, False)
    summed = total(losses, None, False)
    return (binary(R.divide, summed, whole) if reduction == MEAN else summed), whole


@converts(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default, accumulate=Accumulate.OPMATH, symbolic=True)
def nll_loss_backward(grad_output, x, target, weight, reduction, ignore_index, total_weight):
    shares = weights(x, target, weight, ignore_index)
    grad = binary(R.divide, grad_output, total_weight) if reduction == MEAN else grad_output
    each = pointwise(
        "share", lambda g, w: tirx.Select(w == number(0, w), number(0, w), g * w * number(-1, g)), grad, shares
    )
    classes = class_dim(x)

    def element(at, g, t):
        place = [i for d, i in enumerate(at) if d != classes]
        hit = at[classes].equal(t(*place).astype("int64"))
        return tirx.Select(hit, g(*place), number(0, dtype_of(x)))

    return compute("nll_loss_backward", shape_of(x), element, each, target)


def negated_share(v: Expr, weight: Expr) -> Expr:
    """Nothing where the weight is 0, of a NaN too."""
    return tirx.Select(weight == number(0, weight), number(0, v), v * weight * number(-1, v))


def class_dim(x: Expr) -> int:
    """The classes lie behind the samples; a tensor of one sample has nothing in front of them."""
    return 0 if len(shape_of(x)) == 1 else 1


def chosen(x: Expr, target: Expr, ignore_index: int) -> Expr:
    """Each sample's value of its class; poison where there is no such class."""
    classes = class_dim(x)
    count = shape_of(x)[classes]

    def element(at, v, t):
        c = t(*at).astype("int64")
        value = v(*at[:classes], held_inside(c, count), *at[classes:])
        known = tirx.Or(inside_of(c, count), c.equal(extent(ignore_index)))
        return tirx.Select(known, value, poison(dtype_of(x)))

    return compute("chosen", shape_of(target), element, x, target)


def weights(x: Expr, target: Expr, weight: Expr | None, ignore_index: int) -> Expr:
    """The weight of each sample: that of its class, or 1; 0 where it is ignored."""
    name = dtype_of(x)
    count = shape_of(x)[class_dim(x)]

    def element(at, t, *given):
        c = t(*at).astype("int64")
        share = given[0](held_inside(c, count)) if given else number(1, name)
        return tirx.Select(c.equal(extent(ignore_index)), number(0, name), share)

    return compute("weights", shape_of(target), element, target, *([] if weight is None else [weight]))
