"""Attention as it is written down: what the overloads that only a GPU has are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import randn, tensor

aten = torch.ops.aten
INF = math.inf


def attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, causal: bool, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the logarithm of each query's sum of exponentials."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1]))
    scores = scores if bias is None else scores + bias
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -INF)
    none = (scores == -INF).all(-1, keepdim=True)
    weights = scores.masked_fill(none, 0).softmax(-1).masked_fill(none, 0)
    return weights @ v, scores.logsumexp(-1).masked_fill(none[..., 0], INF)


def forward(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """None for what is not compared."""
    out, sums = attended(*read(given))
    return (out, None, None, None) if "attn_bias" in given else (out, sums, *[None] * 7)


def backward(given: Mapping[str, Any]) -> tuple[Any, ...]:
    q, k, v, *rest = read(given)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out, _ = attended(*leaves, *rest)  # type: ignore[arg-type]
    gradients = torch.autograd.grad(out, leaves, given.get("grad_out", given.get("grad_out_")))
    return (*gradients, None) if "attn_bias" in given else gradients


def read(given: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(given[n] for n in ("query", "key", "value")), given.get("attn_bias"), given["is_causal"], given["scale"])


def padded(sums: torch.Tensor) -> torch.Tensor:
    """A kernel leaves what is behind the last query as it is; so it is not compared."""
    rows = math.ceil(sums.shape[-1] / 32) * 32
    return torch.nn.functional.pad(sums, (0, rows - sums.shape[-1]), value=math.nan)


def heads(queries: int, keys: int, width: int, groups: int = 1) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values; the queries' heads lie next to one another, as a projection leaves them."""
    return (
        randn(2, queries, 2 * groups, width).transpose(1, 2),
        randn(2, 2, keys, width),
        randn(2, 2, keys, width),
    )


def some(queries: int, keys: int) -> torch.Tensor:
    """A bias that allows some keys; the second query may ask for none."""
    bias = randn(1, 1, queries, keys).masked_fill(torch.rand(queries, keys) < 0.3, -INF)
    bias[..., 1, :] = -INF
    return bias.expand(2, 2, queries, keys)


def flash() -> list[tuple[Any, ...]]:
    return [
        (*heads(20, 20, 8), 0.0, True),
        (*heads(20, 35, 24, groups=2), 0.0, False),
        (*(x.half() for x in heads(33, 33, 16)), 0.0, True),
    ]


def efficient() -> list[tuple[Any, ...]]:
    return [(*heads(20, 35, 8), some(20, 35), True), (*heads(17, 17, 16), None, True, 0.0, True)]


def flash_backward() -> list[tuple[Any, ...]]:
    calls = []
    for q, k, v, dropout, causal in flash():
        out, sums = attended(q.float(), k.float(), v.float(), None, causal, None)
        none = torch.empty(0)
        given = (torch.randn_like(q), q, k, v, out.to(q.dtype), sums, none, none, q.shape[2], k.shape[2])
        calls.append((*given, dropout, causal, none, none))
    return calls


def efficient_backward() -> list[tuple[Any, ...]]:
    calls = []
    for q, k, v, bias, *rest in efficient():
        causal = len(rest) > 1
        out, sums = attended(q, k, v, bias, causal, None)
        given = (torch.randn_like(q), q, k, v, bias, out, padded(sums), tensor(0), tensor(0), 0.0)
        calls.append((*given, [True, True, True, False], causal))
    return calls


SAMPLES = {
    aten._scaled_dot_product_flash_attention.default: flash,
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    aten._scaled_dot_product_efficient_attention.default: efficient,
    aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
}

REFERENCES = {op: backward if "backward" in str(op) else forward for op in SAMPLES}
