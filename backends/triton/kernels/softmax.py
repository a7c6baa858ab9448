"""Softmax and its logarithm along rows, forward and backward: a row tile by tile, however long it is.

The forward walks a row twice, first for its largest element and the sum of exponentials, which it corrects whenever a
larger one comes; the backward first for the sum that all elements have in common. A row that fits in one tile is read
once from memory, since the second walk finds it in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit
from bridge.backends.triton.kernels.layout import SUMMED_IN
from bridge.backends.triton.table import launches
from bridge.ir.shapes import positive

aten = torch.ops.aten

CONFIGS = (
    {"TILE": 1024, "num_warps": 4},
    {"TILE": 4096, "num_warps": 8},
    {"TILE": 8192, "num_warps": 16},
)


@jit
def forward_kernel(x, out, width, LOG: tl.constexpr, WORK: tl.constexpr, TILE: tl.constexpr):
    x += tl.program_id(0).to(tl.int64) * width
    out += tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, TILE)
    most, total = tl.full([TILE], float("-inf"), WORK), tl.zeros([TILE], WORK)
    for begin in range(0, width, TILE):
        value = tl.load(x + begin + column, begin + column < width, float("-inf")).to(WORK)
        larger = tl.maximum(most, value)
        known = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(most - known) + tl.exp(value - known)
        most = larger
    peak = tl.max(most, 0)
    known = tl.where(peak == float("-inf"), 0.0, peak)
    total = tl.sum(total * tl.exp(most - known), 0)
    logarithm = peak + tl.log(total)
    for begin in range(0, width, TILE):
        live = begin + column < width
        value = tl.load(x + begin + column, live, float("-inf")).to(WORK)
        made = value - logarithm if LOG else tl.exp(value - peak) / total
        tl.store(out + begin + column, made.to(out.dtype.element_ty), live)


@jit
def backward_kernel(grad, y, dx, width, LOG: tl.constexpr, WORK: tl.constexpr, TILE: tl.constexpr):
    """y: what the forward gave."""
    start = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, TILE)
    total = tl.zeros([TILE], WORK)
    for begin in range(0, width, TILE):
        live = begin + column < width
        g = tl.load(grad + start + begin + column, live, 0).to(WORK)
        total += g if LOG else g * tl.load(y + start + begin + column, live, 0).to(WORK)
    common = tl.sum(total, 0)
    for begin in range(0, width, TILE):
        live = begin + column < width
        g = tl.load(grad + start + begin + column, live, 0).to(WORK)
        value = tl.load(y + start + begin + column, live, 0).to(WORK)
        made = g - tl.exp(value) * common if LOG else value * (g - common)
        tl.store(dx + start + begin + column, made.to(dx.dtype.element_ty), live)


def launched(
    kernel: Any, inputs: tuple[torch.Tensor, ...], dtype: torch.dtype, logarithm: bool, config: Mapping[str, Any]
) -> torch.Tensor:
    """What a kernel makes of rows, in a type."""
    inputs = tuple(one.contiguous() for one in inputs)
    out = torch.empty_like(inputs[0], dtype=dtype)
    if out.numel():
        width = out.shape[-1] if out.dim() else 1
        work = SUMMED_IN.get(inputs[0].dtype, inputs[0].dtype)
        tile = min(config["TILE"], triton.next_power_of_2(width))
        kernel[(out.numel() // width,)](
            *inputs, out, width, LOG=logarithm, WORK=tl.float64 if work == torch.float64 else tl.float32,
            TILE=tile, num_warps=config["num_warps"],
        )  # fmt: skip
    return out


def inner_dimension(x: torch.Tensor, dim: int) -> str | None:
    return None if positive(dim, x.dim()) == max(x.dim() - 1, 0) else "a dimension that is not the last"


def inner_dimension_of_gradient(grad_output: torch.Tensor, dim: int) -> str | None:
    return inner_dimension(grad_output, dim)


@launches(aten._softmax.default, configs=CONFIGS, refuses=inner_dimension)
def softmax(x, dim, half_to_float, *, config):
    return launched(forward_kernel, (x,), torch.float32 if half_to_float else x.dtype, False, config)


@launches(aten._log_softmax.default, configs=CONFIGS, refuses=inner_dimension)
def log_softmax(x, dim, half_to_float, *, config):
    return launched(forward_kernel, (x,), torch.float32 if half_to_float else x.dtype, True, config)


@launches(aten._softmax_backward_data.default, configs=CONFIGS, refuses=inner_dimension_of_gradient)
def softmax_backward(grad_output, output, dim, input_dtype, *, config):
    return launched(backward_kernel, (grad_output, output), input_dtype, False, config)


@launches(aten._log_softmax_backward_data.default, configs=CONFIGS, refuses=inner_dimension_of_gradient)
def log_softmax_backward(grad_output, output, dim, input_dtype, *, config):
    return launched(backward_kernel, (grad_output, output), input_dtype, True, config)
