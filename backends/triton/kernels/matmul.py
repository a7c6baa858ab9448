"""Products of matrices and of batches of them, with a bias and an activation in the same kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit
from bridge.backends.triton.table import launches

aten = torch.ops.aten

CONFIGS = (
    {"ROWS": 128, "COLUMNS": 128, "INNER": 64, "num_warps": 4, "num_stages": 3},
    {"ROWS": 128, "COLUMNS": 256, "INNER": 64, "num_warps": 8, "num_stages": 3},
    {"ROWS": 256, "COLUMNS": 128, "INNER": 64, "num_warps": 8, "num_stages": 3},
    {"ROWS": 128, "COLUMNS": 128, "INNER": 64, "num_warps": 8, "num_stages": 4},
    {"ROWS": 64, "COLUMNS": 64, "INNER": 64, "num_warps": 4, "num_stages": 4},
    {"ROWS": 128, "COLUMNS": 128, "INNER": 32, "num_warps": 8, "num_stages": 3},
)
TOGETHER = 8
"""Rows of blocks that are walked together, so that what they read stays in the cache."""


@jit
def tanh(x):
    """Without loss near 0, and without overflow."""
    y = tl.abs(x)
    e = tl.exp(-2 * y)
    far = (1 - e) / (1 + e)
    near = y * (1 + y * y * (-1.0 / 3 + y * y * (2.0 / 15)))
    size = tl.where(y < 0.05, near, far)
    return tl.where(x < 0, -size, size)


@jit
def product_kernel(
    a, b, bias, out, rows, columns, inner, a_strides, b_strides, bias_strides, out_strides, alpha, beta,
    BIASED: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, TOGETHER: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Strides are by batch, row and column."""
    tall, wide = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    program, batch = tl.program_id(0) % (tall * wide), (tl.program_id(0) // (tall * wide)).to(tl.int64)
    band = program // (TOGETHER * wide)
    height = min(tall - band * TOGETHER, TOGETHER)
    here = program % (TOGETHER * wide)
    row = (band * TOGETHER + here % height) * ROWS + tl.arange(0, ROWS)
    column = here // height * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.arange(0, INNER)
    a_row, b_column = (row % rows).to(tl.int64), (column % columns).to(tl.int64)
    a_at = a + batch * a_strides[0] + a_row[:, None] * a_strides[1] + at[None, :] * a_strides[2]
    b_at = b + batch * b_strides[0] + at[:, None] * b_strides[1] + b_column[None, :] * b_strides[2]
    made = tl.zeros([ROWS, COLUMNS], tl.float32)
    for left in range(inner, 0, -INNER):
        x = tl.load(a_at, (at < left)[None, :], 0)
        y = tl.load(b_at, (at < left)[:, None], 0)
        made = tl.dot(x, y, made, input_precision=PRECISION)
        a_at += INNER * a_strides[2]
        b_at += INNER * b_strides[1]
    live = (row < rows)[:, None] & (column < columns)[None, :]
    if BIASED:
        at_bias = batch * bias_strides[0] + a_row[:, None] * bias_strides[1] + b_column[None, :] * bias_strides[2]
        made = made * alpha + tl.load(bias + at_bias, live, 0).to(tl.float32) * beta
    if ACTIVATION == "relu":
        made = tl.where(made < 0, 0.0, made)
    if ACTIVATION == "gelu":
        made = 0.5 * made * (1 + tanh(0.7978845608028654 * (made + 0.044715 * made * made * made)))
    out_at = batch * out_strides[0] + row.to(tl.int64)[:, None] * out_strides[1] + column[None, :] * out_strides[2]
    tl.store(out + out_at, made.to(out.dtype.element_ty), live)


def precision(x: torch.Tensor) -> str:
    """Whether products of float32 are made in TF32, by torch's setting; other types have one way alone."""
    return "ieee" if x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest" else "tf32"


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    config: Mapping[str, Any],
    bias: torch.Tensor | None = None,
    beta: float = 1,
    alpha: float = 1,
    activation: str = "",
) -> torch.Tensor:
    """activation(beta · bias + alpha · a @ b) of batches. A bias that counts for nothing is not read."""
    batch, rows, inner = a.shape
    columns = b.shape[2]
    out = a.new_empty((batch, rows, columns))
    if out.numel() == 0:
        return out
    is_biased = bias is not None
    held = (bias if beta != 0 else bias.new_zeros(())).expand(out.shape) if bias is not None else out
    blocks = triton.cdiv(rows, config["ROWS"]) * triton.cdiv(columns, config["COLUMNS"])
    product_kernel[(blocks * batch,)](
        a, b, held, out, rows, columns, inner, a.stride(), b.stride(), held.stride(), out.stride(), alpha, beta,
        BIASED=is_biased, ACTIVATION=activation, PRECISION=precision(a), TOGETHER=TOGETHER, **config,
    )  # fmt: skip
    return out


def other_types(x: torch.Tensor) -> str | None:
    """What tensor cores do not multiply."""
    fits = x.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return None if fits else f"{x.dtype} is not supported"


@launches(aten.mm.default, configs=CONFIGS, refuses=other_types)
def mm(x, mat2, *, config):
    return product(x[None], mat2[None], config)[0]


@launches(aten.bmm.default, configs=CONFIGS, refuses=other_types)
def bmm(x, mat2, *, config):
    return product(x, mat2, config)


@launches(aten.addmm.default, configs=CONFIGS, refuses=other_types)
def addmm(x, mat1, mat2, beta, alpha, *, config):
    return product(mat1[None], mat2[None], config, x, beta, alpha)[0]


@launches(aten.baddbmm.default, configs=CONFIGS, refuses=other_types)
def baddbmm(x, batch1, batch2, beta, alpha, *, config):
    return product(batch1, batch2, config, x, beta, alpha)


@launches(aten._addmm_activation.default, configs=CONFIGS, refuses=other_types)
def addmm_activation(x, mat1, mat2, beta, alpha, use_gelu, *, config):
    """The activation is ReLU, or GELU by its approximation with tanh."""
    return product(mat1[None], mat2[None], config, x, beta, alpha, "gelu" if use_gelu else "relu")[0]
