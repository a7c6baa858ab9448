"""Backward of layer norm and of RMS norm: a row in registers, and the sums over rows in parts.

With y = (x − mean) · rstd, the gradient of the input is rstd · (g − mean(g) − y · mean(g · y)), where g is the gradient
of the result times the weight; RMS norm has no mean, and the term mean(g) is not there. A program walks some rows, and
adds up what they give to the gradients of weight and bias; the parts are added up in a second step, in one order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit
from bridge.backends.triton.kernels.layout import SUMMED_IN
from bridge.backends.triton.table import launches

aten = torch.ops.aten

CONFIGS = (
    {"TILE": 1024, "num_warps": 4},
    {"TILE": 2048, "num_warps": 4},
    {"TILE": 4096, "num_warps": 8},
    {"TILE": 8192, "num_warps": 16},
)
"""TILE: elements of the rows that are held at once; a longer row is held by itself."""

PARTS = 528
"""Programs, four for each multiprocessor of a large GPU: each leaves a part of the sums over rows."""

WIDEST = 16384


@jit
def norm_kernel(
    grad, x, mean, rstd, weight, dx, parts_w, parts_b, rows, width, turns, CENTRED: tl.constexpr, WEIGHED: tl.constexpr,
    WORK: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    inside = (column < width)[None, :]
    scale = tl.full([1, WIDTH], 1.0, WORK)
    if WEIGHED:
        scale = tl.load(weight + column[None, :], inside, 0).to(WORK)
    sum_w, sum_b = tl.zeros([WIDTH], WORK), tl.zeros([WIDTH], WORK)
    for turn in range(turns):
        row = (turn * tl.num_programs(0) + tl.program_id(0)).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        live = (row < rows)[:, None] & inside
        at = row[:, None] * width + column[None, :]
        g = tl.load(grad + at, live, 0).to(WORK)
        spread = tl.load(rstd + row, row < rows, 0).to(WORK)[:, None]
        y = tl.load(x + at, live, 0).to(WORK)
        if CENTRED:
            y = tl.where(live, y - tl.load(mean + row, row < rows, 0).to(WORK)[:, None], 0.0)
        y = y * spread
        sum_w += tl.sum(g * y, 0)
        sum_b += tl.sum(g, 0)
        g = g * scale
        made = g - y * (tl.sum(g * y, 1) / width)[:, None]
        if CENTRED:
            made = made - (tl.sum(g, 1) / width)[:, None]
        tl.store(dx + at, (made * spread).to(dx.dtype.element_ty), live)
    tl.store(parts_w + tl.program_id(0) * width + column, sum_w, column < width)
    if CENTRED:
        tl.store(parts_b + tl.program_id(0) * width + column, sum_b, column < width)


def backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    shape: list[int],
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of the input, the weight and the bias; without a mean the last is not made."""
    grad, x, rstd = grad.contiguous(), x.contiguous(), rstd.contiguous()
    width = math.prod(shape)
    rows = x.numel() // max(1, width)
    work = SUMMED_IN.get(x.dtype, x.dtype)
    dx = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    height = max(1, min(config["TILE"] // block, triton.next_power_of_2(max(1, rows))))
    programs = min(PARTS, triton.cdiv(rows, height))
    parts = [torch.empty((programs, width), dtype=work, device=x.device) for _ in range(1 if mean is None else 2)]
    if x.numel():
        norm_kernel[(programs,)](
            grad, x, rstd if mean is None else mean.contiguous(), rstd, x if weight is None else weight.contiguous(),
            dx, parts[0], parts[-1], rows, width, triton.cdiv(triton.cdiv(rows, height), programs),
            CENTRED=mean is not None, WEIGHED=weight is not None, ROWS=height, WIDTH=block,
            WORK=tl.float64 if work == torch.float64 else tl.float32, num_warps=config["num_warps"],
        )  # fmt: skip
    sums = [part.sum(0).to(x.dtype).reshape(shape) for part in parts]
    return dx, sums[0], sums[-1]


def wide_rows(normalized_shape: list[int]) -> str | None:
    width = math.prod(normalized_shape)
    return f"rows of {width} elements" if width > WIDEST else None


@launches(aten.native_layer_norm_backward.default, configs=CONFIGS, refuses=wide_rows, symbolic=False)
def layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask, *, config):
    made = backward(grad_out, input, normalized_shape, mean, rstd, weight, config)
    return tuple(one if wanted else None for one, wanted in zip(made, output_mask))


@launches(aten._fused_rms_norm_backward.default, configs=CONFIGS, refuses=wide_rows, symbolic=False)
def rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask, *, config):
    dx, dw, _ = backward(grad_out, input, normalized_shape, None, rstd, weight, config)
    return dx if output_mask[0] else None, dw if output_mask[1] and weight is not None else None
