"""Scaled dot-product attention as torch's CPU kernel gives it: the result, and the logarithm of the sums."""

from __future__ import annotations

import math

import torch

from bridge.backends.tvm.compat import Expr, dtype_of, infinity, number, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import compute, pointwise, reduced, reduction
from bridge.backends.tvm.ops.reduction import extreme, total
from bridge.backends.tvm.table import Accumulate, converts

aten = torch.ops.aten


def without_dropout(dropout_p, query, key):
    """Symbolic numbers of heads have to be equal, which torch guards once it has been asked."""
    if dropout_p:
        return f"dropout_p={dropout_p}"
    heads, of_keys = query.shape[1], key.shape[1]
    known = isinstance(heads, int) and isinstance(of_keys, int)
    return None if known or heads == of_keys else f"{heads} heads share {of_keys} heads of keys"


@converts(
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    accumulate=Accumulate.OPMATH,
    refuses=without_dropout,
    symbolic=True,
)
def attention(query, key, value, dropout_p, is_causal, attn_mask, scale):
    """Of (batch, heads, length, width). A query that may ask for no key gets nothing, and a logarithm of 0."""
    scores = scored(query, key, is_causal, attn_mask, scale)
    top = extreme("max", scores, [3], True)
    powers = pointwise("shifted_exp", power_unless_masked, scores, top)
    whole = total(powers, [3], True)
    weights = pointwise("weights", lambda p, s: unless_nothing(s, p / s), powers, whole)
    logarithm = pointwise("logsumexp", lambda s, m: unless_nothing(s, tirx.log(s) + m), whole, top)
    return weighted(weights, value), reshaped(logarithm, shape_of(logarithm)[:3])


@converts(
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    accumulate=Accumulate.OPMATH,
    refuses=without_dropout,
    symbolic=True,
)
def attention_backward(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale):
    """The weights are computed again from the logarithm of the sums."""
    shared = shared_by(query, key)
    scores = scored(query, key, is_causal, attn_mask, scale)
    weights = compute("weights", shape_of(scores), weight_again(is_causal), scores, logsumexp)
    dvalue = transposed_weighted(weights, grad_out, shared)
    dweights = contracted(grad_out, value)
    inside = reduced("inside", "sum", lambda g, o: g * o, [grad_out, out], [3], True)
    factor = scale_of(query, scale)
    dscores = pointwise("dscores", lambda w, d, s: w * (d - s) * factor, weights, dweights, inside)
    return weighted(dscores, key), transposed_weighted(dscores, query, shared), dvalue


def scale_of(query: Expr, scale: float | None) -> Expr:
    """One over the root of the width, unless it is given."""
    width, name = shape_of(query)[3], dtype_of(query)
    if scale is None and not isinstance(width, int):
        return tirx.rsqrt(width.astype(name))
    return number(1 / math.sqrt(width) if scale is None else scale, name)


def power_unless_masked(score: Expr, shift: Expr) -> Expr:
    """0 of what is masked, also where minus infinity is all that there is."""
    return tirx.Select(score == -infinity(score), number(0, score), tirx.exp(score - shift))


def weight_again(is_causal: bool):
    """The weight from a score and the logarithm of the sums; 0 of what lies in the future, whatever the logarithm."""

    def element(at, score, logarithm):
        power = tirx.exp(score(*at) - logarithm(*at[:3]))
        return tirx.Select(at[3] > at[2], number(0, power), power) if is_causal else power

    return element


def unless_nothing(whole: Expr, value: Expr) -> Expr:
    """0 where no key may be asked for."""
    return tirx.Select(whole == number(0, whole), number(0, value), value)


def scored(query: Expr, key: Expr, is_causal: bool, mask: Expr | None, scale: float | None) -> Expr:
    """How much each query asks for each key: scaled, and masked by addition or by causality.

    The query is scaled, not the product: a product next to the subtraction of the maximum would be contracted with it,
    and the largest score would not be the maximum any more.
    """
    factor = scale_of(query, scale)
    products = contracted(pointwise("scaled_query", lambda q: q * factor, query), key)

    def element(at, p, *masks):
        v = p(*at)
        if masks:
            shape = shape_of(mask)
            place = at[4 - len(shape) :]
            v = v + masks[0](*(0 if n == 1 else i for i, n in zip(place, shape, strict=True)))
        return tirx.Select(at[3] > at[2], -infinity(v), v) if is_causal else v

    return compute("scores", shape_of(products), element, products, *([] if mask is None else [mask]))


def shared_by(query: Expr, key: Expr) -> int:
    """How many heads of queries ask one head of keys, and take of one head of values."""
    heads, of_keys = shape_of(query)[1], shape_of(key)[1]
    return heads // of_keys if isinstance(heads, int) and isinstance(of_keys, int) else 1


def contracted(a: Expr, b: Expr) -> Expr:
    """a (…, L, E) times the transpose of b (…, S, E)."""
    batch, heads, length, width = shape_of(a)
    shape = [batch, heads, length, shape_of(b)[2]]
    shared = shared_by(a, b)

    def element(at, over, x, y):
        n, h, i, j = at
        return x(n, h, i, over[0]) * y(n, tirx.floordiv(h, shared), j, over[0])

    return reduction("contracted", "sum", shape, [width], element, a, b)


def weighted(weights: Expr, value: Expr) -> Expr:
    """weights (…, L, S) times value (…, S, E)."""
    batch, heads, length, size = shape_of(weights)
    shared = shared_by(weights, value)

    def element(at, over, w, v):
        n, h, i, e = at
        return w(n, h, i, over[0]) * v(n, tirx.floordiv(h, shared), over[0], e)

    return reduction("weighted", "sum", [batch, heads, length, shape_of(value)[3]], [size], element, weights, value)


def transposed_weighted(weights: Expr, value: Expr, shared: int) -> Expr:
    """The transpose of weights (…, L, S) times value (…, L, E), summed over the heads that share one."""
    batch, heads, length, size = shape_of(weights)
    shape = [batch, heads if shared == 1 else heads // shared, size, shape_of(value)[3]]

    def element(at, over, w, v):
        (n, h, j, e), (member, i) = at, over
        head = h * shared + member
        return w(n, head, i, j) * v(n, head, i, e)

    return reduction("gathered", "sum", shape, [shared, length], element, weights, value)
