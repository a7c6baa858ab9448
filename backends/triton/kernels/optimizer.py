"""One step of AdamW for all parameters in one launch: a table of addresses, and a program for each block of elements.

The table lies on the device and holds, for each block, where its parameter, gradient and moments begin, and how many
elements are left. It is made once for tensors that stay where they are, as an optimizer's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit

BLOCK = 2048
TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@dataclass(frozen=True)
class Blocks:
    """Parameters of one type, their gradients of one type, and moments in float32, as blocks."""

    table: torch.Tensor
    dtype: torch.dtype
    grad_dtype: torch.dtype
    moment_dtype: torch.dtype


def blocks(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    firsts: Sequence[torch.Tensor],
    seconds: Sequence[torch.Tensor],
) -> Blocks:
    """The table for tensors that lie compactly. Raises ValueError for those that do not, or that differ in type."""
    rows: list[tuple[int, ...]] = []
    for four in zip(params, grads, firsts, seconds, strict=True):
        if not all(x.is_contiguous() and x.numel() == four[0].numel() for x in four):
            raise ValueError("parameters, gradients and moments have to lie compactly and be of one size")
        for start in range(0, four[0].numel(), BLOCK):
            addresses = (x.data_ptr() + start * x.element_size() for x in four)
            rows.append((*addresses, min(BLOCK, four[0].numel() - start)))
    dtypes = {tuple(x.dtype for x in four) for four in zip(params, grads, firsts, seconds)}
    if len(dtypes) > 1 or any(dtype not in TYPES for four in dtypes for dtype in four):
        raise ValueError(f"one launch is for tensors of one floating type, not {dtypes}")
    ((dtype, grad_dtype, moment_dtype, _),) = dtypes
    table = torch.tensor(rows, dtype=torch.int64, device=params[0].device)
    return Blocks(table, dtype, grad_dtype, moment_dtype)


@jit
def adamw_kernel(
    table, step, lr, beta1, beta2, eps, decay, TYPE: tl.constexpr, GRAD: tl.constexpr, MOMENT: tl.constexpr,
    MAXIMIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """step: the number of this step, in memory, so that a captured launch counts on. lr: likewise."""
    row = table + tl.program_id(0) * 5
    at = tl.arange(0, BLOCK)
    live = at < tl.load(row + 4)
    param = tl.load(row).to(tl.pointer_type(TYPE)) + at
    first = tl.load(row + 2).to(tl.pointer_type(MOMENT)) + at
    second = tl.load(row + 3).to(tl.pointer_type(MOMENT)) + at
    g = tl.load(tl.load(row + 1).to(tl.pointer_type(GRAD)) + at, live, 0).to(tl.float32)
    if MAXIMIZE:
        g = -g
    count, rate = tl.load(step).to(tl.float32), tl.load(lr).to(tl.float32)
    m = tl.load(first, live, 0).to(tl.float32)
    v = tl.load(second, live, 0).to(tl.float32)
    m = m + (g - m) * (1 - beta1)
    v = v * beta2 + g * g * (1 - beta2)
    whole1, whole2 = 1 - tl.exp2(count * tl.log2(beta1)), 1 - tl.exp2(count * tl.log2(beta2))
    p = tl.load(param, live, 0).to(tl.float32)
    p = p - rate * decay * p
    p = p - rate / whole1 * m / (tl.sqrt(v) / tl.sqrt(whole2) + eps)
    tl.store(param, p.to(TYPE), live)
    tl.store(first, m.to(MOMENT), live)
    tl.store(second, v.to(MOMENT), live)


def adamw(
    held: Blocks,
    step: torch.Tensor,
    lr: torch.Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    maximize: bool = False,
) -> None:
    """Change the parameters and moments of `held` in place. step and lr: tensors of one element on the device."""
    if held.table.shape[0] == 0:
        return
    adamw_kernel[(held.table.shape[0],)](
        held.table, step, lr, *betas, eps, weight_decay, TYPE=TYPES[held.dtype], GRAD=TYPES[held.grad_dtype],
        MOMENT=TYPES[held.moment_dtype], MAXIMIZE=maximize, BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
