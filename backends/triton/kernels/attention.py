"""Attention, forward and backward, without its weights in memory: causal, with a bias, with grouped heads.

The forward keeps the logarithm of each query's sum of exponentials. The backward makes the weights again from it, once
by blocks of keys for the gradients of keys and values, once by blocks of queries for theirs. Exponentials are powers
of two, so scores are in units of log 2. A query whose bias allows no key gives zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit
from bridge.backends.triton.kernels.matmul import precision
from bridge.backends.triton.table import launches

aten = torch.ops.aten

FORWARD = (
    {"OWN": 128, "STEP": 64, "num_warps": 4, "num_stages": 3},
    {"OWN": 128, "STEP": 64, "num_warps": 8, "num_stages": 3},
    {"OWN": 128, "STEP": 128, "num_warps": 8, "num_stages": 2},
    {"OWN": 64, "STEP": 64, "num_warps": 4, "num_stages": 2},
)
BACKWARD = (
    {"OWN": 128, "STEP": 64, "num_warps": 8, "num_stages": 2},
    {"OWN": 64, "STEP": 64, "num_warps": 4, "num_stages": 2},
    {"OWN": 128, "STEP": 32, "num_warps": 4, "num_stages": 3},
)
WIDEST = 256
LOG2E = tl.constexpr(1.4426950408889634)


@jit
def block(base, row, strides, rows, width, WIDTH: tl.constexpr):
    """Rows of one head; what is behind the last row or wider than a row is 0."""
    column = tl.arange(0, WIDTH)
    live = (row < rows)[:, None] & (column < width)[None, :]
    return tl.load(base + row.to(tl.int64)[:, None] * strides[2] + column[None, :] * strides[3], live, 0)


@jit
def put(base, value, row, strides, rows, width, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    live = (row < rows)[:, None] & (column < width)[None, :]
    at = base + row.to(tl.int64)[:, None] * strides[2] + column[None, :] * strides[3]
    tl.store(at, value.to(base.dtype.element_ty), live)


@jit
def place_of(count, BLOCK: tl.constexpr):
    """A program's block of `count` rows, and its batch and head as one number; the grid's other axes are too short."""
    blocks = tl.cdiv(count, BLOCK)
    return tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)


@jit
def scores(q, k, bias, query, key, b_strides, queries, keys, scale, CAUSAL, BIASED, PRECISION, CUT: tl.constexpr):
    """By query and key. With CUT what may not be seen is minus infinity; without it all of the block may be."""
    made = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2E)
    if BIASED:
        at = query.to(tl.int64)[:, None] * b_strides[2] + key.to(tl.int64)[None, :] * b_strides[3]
        live = (query < queries)[:, None] & (key < keys)[None, :]
        made += tl.load(bias + at, live, 0).to(tl.float32) * LOG2E
    if CUT:
        seen = (key < keys)[None, :]
        if CAUSAL:
            seen = seen & (query[:, None] >= key[None, :])
        made = tl.where(seen, made, float("-inf"))
    return made


@jit
def attend(
    most, total, made, held, k, v, bias, query, begin, end, k_strides, v_strides, b_strides, queries, keys, width,
    scale, CAUSAL: tl.constexpr, BIASED: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    STEP: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Go on through the keys from `begin` to `end`: the largest score, the sum of exponentials, the weighted sum."""
    for first in tl.range(begin, end, STEP):
        key = first + tl.arange(0, STEP)
        keys_here = block(k, key, k_strides, keys, width, WIDTH)
        score = scores(
            held, keys_here, bias, query, key, b_strides, queries, keys, scale, CAUSAL, BIASED, PRECISION, CUT
        )
        larger = tl.maximum(most, tl.max(score, 1))
        known = tl.where(larger == float("-inf"), 0.0, larger)
        weight = tl.exp2(score - known[:, None])
        kept = tl.exp2(most - known)
        total = total * kept + tl.sum(weight, 1)
        values = block(v, key, v_strides, keys, width, WIDTH)
        made = tl.dot(weight.to(values.dtype), values, made * kept[:, None], input_precision=PRECISION)
        most = larger
    return most, total, made


@jit
def forward_kernel(
    q, k, v, bias, out, sums, q_strides, k_strides, v_strides, b_strides, o_strides, heads, group, queries, keys, width,
    padded, scale, CAUSAL: tl.constexpr, BIASED: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    OWN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """padded: the length of a row of `sums`."""
    place, row = place_of(queries, OWN)
    batch, head = row // heads, row % heads
    first = place * OWN
    query = first + tl.arange(0, OWN)
    k += batch * k_strides[0] + head // group * k_strides[1]
    v += batch * v_strides[0] + head // group * v_strides[1]
    bias += batch * b_strides[0] + head * b_strides[1]
    held = block(q + batch * q_strides[0] + head * q_strides[1], query, q_strides, queries, width, WIDTH)
    whole, end = keys // STEP * STEP, keys
    if CAUSAL:
        whole, end = min(whole, first // STEP * STEP), min(keys, first + OWN)
    most = tl.full([OWN], float("-inf"), tl.float32)
    total, made = tl.zeros([OWN], tl.float32), tl.zeros([OWN, WIDTH], tl.float32)
    most, total, made = attend(
        most, total, made, held, k, v, bias, query, 0, whole, k_strides, v_strides, b_strides, queries, keys, width,
        scale, CAUSAL, BIASED, PRECISION, WIDTH, STEP, False,
    )  # fmt: skip
    most, total, made = attend(
        most, total, made, held, k, v, bias, query, whole, end, k_strides, v_strides, b_strides, queries, keys, width,
        scale, CAUSAL, BIASED, PRECISION, WIDTH, STEP, True,
    )  # fmt: skip
    made = made / tl.where(total == 0, 1.0, total)[:, None]
    put(out + batch * o_strides[0] + head * o_strides[1], made, query, o_strides, queries, width, WIDTH)
    logarithm = tl.where(total == 0, float("inf"), most / LOG2E + tl.log(total))
    tl.store(sums + row * padded + query, logarithm, query < queries)


@jit
def delta_kernel(
    grad, out, deltas, g_strides, o_strides, heads, queries, width, WIDTH: tl.constexpr, ROWS: tl.constexpr
):
    """What each query's gradient has in common for all keys: the sum of gradient times result."""
    place, row = place_of(queries, ROWS)
    batch, head = row // heads, row % heads
    query = place * ROWS + tl.arange(0, ROWS)
    g = block(grad + batch * g_strides[0] + head * g_strides[1], query, g_strides, queries, width, WIDTH)
    o = block(out + batch * o_strides[0] + head * o_strides[1], query, o_strides, queries, width, WIDTH)
    tl.store(
        deltas + row * queries + query,
        tl.sum(g.to(tl.float32) * o.to(tl.float32), 1),
        query < queries,
    )


@jit
def keys_kernel(
    q, k, v, bias, grad, sums, deltas, dk, dv, q_strides, k_strides, v_strides, b_strides, g_strides, dk_strides,
    dv_strides, heads, group, queries, keys, width, padded, scale, CAUSAL: tl.constexpr, BIASED: tl.constexpr,
    PRECISION: tl.constexpr, WIDTH: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values, from all queries of all heads that share them."""
    shared = heads // group
    place, row = place_of(keys, OWN)
    batch, owner = row // shared, row % shared
    first = place * OWN
    key = first + tl.arange(0, OWN)
    keys_here = block(k + batch * k_strides[0] + owner * k_strides[1], key, k_strides, keys, width, WIDTH)
    values = block(v + batch * v_strides[0] + owner * v_strides[1], key, v_strides, keys, width, WIDTH)
    made_k, made_v = tl.zeros([OWN, WIDTH], tl.float32), tl.zeros([OWN, WIDTH], tl.float32)
    begin = 0
    if CAUSAL:
        begin = first // STEP * STEP
    for member in range(group):
        head = owner * group + member
        q_head = q + batch * q_strides[0] + head * q_strides[1]
        g_head = grad + batch * g_strides[0] + head * g_strides[1]
        b_head = bias + batch * b_strides[0] + head * b_strides[1]
        member_row = batch * heads + head
        for start in range(begin, queries, STEP):
            query = start + tl.arange(0, STEP)
            asking = block(q_head, query, q_strides, queries, width, WIDTH)
            g = block(g_head, query, g_strides, queries, width, WIDTH)
            known = tl.load(sums + member_row * padded + query, query < queries, float("inf")) * LOG2E
            delta = tl.load(deltas + member_row * queries + query, query < queries, 0)
            score = scores(
                asking, keys_here, b_head, query, key, b_strides, queries, keys, scale, CAUSAL, BIASED, PRECISION, True
            )
            weight = tl.where(score == float("-inf"), 0.0, tl.exp2(score - known[:, None]))
            made_v = tl.dot(tl.trans(weight.to(g.dtype)), g, made_v, input_precision=PRECISION)
            sway = tl.dot(g, tl.trans(values), input_precision=PRECISION)
            push = (weight * (sway - delta[:, None])).to(asking.dtype)
            made_k = tl.dot(tl.trans(push), asking, made_k, input_precision=PRECISION)
    put(dk + batch * dk_strides[0] + owner * dk_strides[1], made_k * scale, key, dk_strides, keys, width, WIDTH)
    put(dv + batch * dv_strides[0] + owner * dv_strides[1], made_v, key, dv_strides, keys, width, WIDTH)


@jit
def queries_kernel(
    q, k, v, bias, grad, sums, deltas, dq, q_strides, k_strides, v_strides, b_strides, g_strides, dq_strides, heads,
    group, queries, keys, width, padded, scale, CAUSAL: tl.constexpr, BIASED: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of queries, from all keys."""
    place, row = place_of(queries, OWN)
    batch, head = row // heads, row % heads
    first = place * OWN
    query = first + tl.arange(0, OWN)
    k += batch * k_strides[0] + head // group * k_strides[1]
    v += batch * v_strides[0] + head // group * v_strides[1]
    bias += batch * b_strides[0] + head * b_strides[1]
    asking = block(q + batch * q_strides[0] + head * q_strides[1], query, q_strides, queries, width, WIDTH)
    g = block(grad + batch * g_strides[0] + head * g_strides[1], query, g_strides, queries, width, WIDTH)
    known = tl.load(sums + row * padded + query, query < queries, float("inf")) * LOG2E
    delta = tl.load(deltas + row * queries + query, query < queries, 0)
    made = tl.zeros([OWN, WIDTH], tl.float32)
    end = keys
    if CAUSAL:
        end = min(keys, first + OWN)
    for start in range(0, end, STEP):
        key = start + tl.arange(0, STEP)
        keys_here = block(k, key, k_strides, keys, width, WIDTH)
        values = block(v, key, v_strides, keys, width, WIDTH)
        score = scores(
            asking, keys_here, bias, query, key, b_strides, queries, keys, scale, CAUSAL, BIASED, PRECISION, True
        )
        weight = tl.where(score == float("-inf"), 0.0, tl.exp2(score - known[:, None]))
        sway = tl.dot(g, tl.trans(values), input_precision=PRECISION)
        push = (weight * (sway - delta[:, None])).to(keys_here.dtype)
        made = tl.dot(push, keys_here, made, input_precision=PRECISION)
    put(dq + batch * dq_strides[0] + head * dq_strides[1], made * scale, query, dq_strides, queries, width, WIDTH)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    padded: int,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, its heads next to one another, and the logarithms of the sums, in rows of a length."""
    batch, heads, queries, width = q.shape
    out = q.new_empty((batch, queries, heads, width)).transpose(1, 2)
    sums = q.new_empty((batch, heads, padded), dtype=torch.float32)
    given, sizes, rules = shared(q, k, v, bias, causal, scale, padded)
    if out.numel():
        strides = [tensor.stride() for tensor in (*given, out)]
        grid = (triton.cdiv(queries, config["OWN"]) * batch * heads,)
        forward_kernel[grid](*given, out, sums, *strides, *sizes, **rules, **config)
    return out, sums


def backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    sums: torch.Tensor,
    causal: bool,
    scale: float | None,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of queries, keys and values, which lie as these do."""
    batch, heads, queries, width = q.shape
    sums = sums.contiguous()
    deltas = q.new_empty((batch, heads, queries), dtype=torch.float32)
    made = [torch.empty_like(tensor) for tensor in (q, k, v)]
    if any(tensor.numel() == 0 for tensor in made):
        return tuple(tensor.zero_() for tensor in made)  # type: ignore[return-value]
    given, sizes, rules = shared(q, k, v, bias, causal, scale, sums.shape[-1])
    dq, dk, dv = made
    grid = (triton.cdiv(queries, 32) * batch * heads,)
    delta_kernel[grid](
        grad, out, deltas, grad.stride(), out.stride(), heads, queries, width, WIDTH=rules["WIDTH"], ROWS=32
    )
    strides = [tensor.stride() for tensor in (*given, grad)]
    read = (*given, grad, sums, deltas)
    grid = (triton.cdiv(k.shape[2], config["OWN"]) * batch * k.shape[1],)
    keys_kernel[grid](*read, dk, dv, *strides, dk.stride(), dv.stride(), *sizes, **rules, **config)
    grid = (triton.cdiv(queries, config["OWN"]) * batch * heads,)
    queries_kernel[grid](*read, dq, *strides, dq.stride(), *sizes, **rules, **config)
    return dq, dk, dv


def shared(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    padded: int,
) -> tuple[tuple[torch.Tensor, ...], tuple[Any, ...], dict[str, Any]]:
    """What kernels are given alike: tensors, sizes, and by name what they are compiled for."""
    _, heads, queries, width = q.shape
    held = q if bias is None else bias.expand(q.shape[0], heads, queries, k.shape[2])
    sizes = (heads, heads // k.shape[1], queries, k.shape[2], width, padded)
    rules = {"CAUSAL": causal, "BIASED": bias is not None, "PRECISION": precision(q)}
    rules["WIDTH"] = max(16, triton.next_power_of_2(width))
    return (q, k, v, held), (*sizes, scale or 1 / math.sqrt(width)), rules


def dropout_or_wide_heads(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float, is_causal: bool
) -> str | None:
    """What no kernel here is for."""
    if dropout_p != 0:
        return "dropout"
    if query.dtype == torch.float64 or query.shape[-1] != value.shape[-1] or query.shape[-1] > WIDEST:
        return f"heads of {query.shape[-1]} and {value.shape[-1]} elements of {query.dtype}"
    if is_causal and query.shape[2] != key.shape[2]:
        return "is_causal with fewer queries than keys, or more"
    return None


@launches(aten._scaled_dot_product_flash_attention.default, configs=FORWARD, refuses=dropout_or_wide_heads)
def flash_attention(query, key, value, dropout_p, is_causal, scale, *, config):
    """There are no offsets of batches, since all sequences are of one length, and no random numbers."""
    out, sums = forward(query, key, value, None, is_causal, scale, query.shape[2], config)
    state, unused = (query.new_empty(size, dtype=torch.uint64) for size in ((2,), ()))
    return out, sums, None, None, query.shape[2], key.shape[2], state, unused, query.new_empty((0,))


@launches(aten._scaled_dot_product_flash_attention_backward.default, configs=BACKWARD, refuses=dropout_or_wide_heads)
def flash_attention_backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
    philox_offset, scale, *, config,
):  # fmt: skip
    return backward(grad_out, query, key, value, None, out, logsumexp, is_causal, scale, config)


@launches(aten._scaled_dot_product_efficient_attention.default, configs=FORWARD, refuses=dropout_or_wide_heads)
def efficient_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, scale, *, config):
    """The rows of logarithms are padded to 32, or none of them are asked for."""
    padded = triton.cdiv(query.shape[2], 32) * 32
    out, sums = forward(query, key, value, attn_bias, is_causal, scale, padded, config)
    seed, offset = (query.new_empty((), dtype=torch.int64) for _ in range(2))
    return out, sums if compute_log_sumexp else sums[:, :, :0], seed, offset


def bias_gradient(query, key, value, dropout_p, is_causal, grad_input_mask) -> str | None:
    return (
        "a gradient of the bias"
        if grad_input_mask[3]
        else dropout_or_wide_heads(query, key, value, dropout_p, is_causal)
    )


@launches(aten._scaled_dot_product_efficient_attention_backward.default, configs=BACKWARD, refuses=bias_gradient)
def efficient_attention_backward(
    grad_out_, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask,
    is_causal, scale, *, config,
):  # fmt: skip
    return *backward(grad_out_, query, key, value, attn_bias, out, logsumexp, is_causal, scale, config), None
