"""Running sums, products, logarithms of sums of exponentials, and extremes along a dimension.

A program scans its lines tile by tile and carries the last result on. Where there are few lines each is cut: first the
parts are totalled, the totals are scanned, and then each part starts from the total before it. So sums have one order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit
from bridge.backends.triton.kernels.layout import around, is_far
from bridge.backends.triton.table import launches
from bridge.ir.shapes import positive

aten = torch.ops.aten

CONFIGS = (
    {"TILE": 1024, "num_warps": 4},
    {"TILE": 2048, "num_warps": 4},
    {"TILE": 4096, "num_warps": 8},
    {"TILE": 8192, "num_warps": 8},
)
ENOUGH = 1024
"""Programs that keep a GPU busy."""

LEAST = 4
"""Tiles of a part. More than one, since the totals of the parts are scanned in the same way."""

WORKING = {torch.float16: tl.float32, torch.bfloat16: tl.float32, torch.float32: tl.float32, torch.float64: tl.float64}


@jit
def log_add_exp(a, b):
    """Infinities as torch has them. For a small `rest` the sum with 1 loses digits, which the quotient gives back."""
    low, high = tl.minimum(a, b), tl.maximum(a, b)
    rest = tl.exp(low - high)
    one = 1 + rest
    more = tl.where(one == 1, rest, tl.log(one) * (rest / (one - 1)))
    joined = tl.where((low == high) & (tl.abs(low) == float("inf")), high, high + more)
    return tl.where((a != a) | (b != b), a + b, joined)


@jit
def later_largest(a, a_at, b, b_at):
    takes = (b != b) | ((a == a) & (b >= a))
    return tl.where(takes, b, a), tl.where(takes, b_at, a_at)


@jit
def later_smallest(a, a_at, b, b_at):
    takes = (b != b) | ((a == a) & (b <= a))
    return tl.where(takes, b, a), tl.where(takes, b_at, a_at)


@jit
def scan_kernel(
    x,
    out,
    starts,
    lines,
    n,
    behind,
    part,
    OP: tl.constexpr,
    WORK: tl.constexpr,
    TOTALS: tl.constexpr,
    STARTED: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """A tile is a block of the dimension by some lines. With TOTALS only the last result of each part is stored."""
    line = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    cut = tl.program_id(1)
    if not WIDE:
        line = line.to(tl.int32)
    before, column = line // behind, line % behind
    neutral = 0.0
    if OP == "product":
        neutral = 1.0
    if OP == "logsumexp":
        neutral = float("-inf")
    carry = tl.full([LANES], neutral, WORK)
    if STARTED and cut > 0:
        carry = tl.load(starts + (before * tl.num_programs(1) + cut - 1) * behind + column, line < lines, 0).to(WORK)
    for begin in range(cut * part, min(cut * part + part, n), BLOCK):
        row = (begin + tl.arange(0, BLOCK)).to(line.dtype)
        live = (row < n)[:, None] & (line < lines)[None, :]
        at = (before * n * behind + column)[None, :] + (row * behind)[:, None]
        tile = tl.where(live, tl.load(x + at, live, 0).to(WORK), tl.full([], neutral, WORK))
        if OP == "sum":
            tile = tl.cumsum(tile, 0) + carry[None, :]
        elif OP == "product":
            tile = tl.cumprod(tile, 0) * carry[None, :]
        else:
            tile = log_add_exp(carry[None, :], tl.associative_scan(tile, 0, log_add_exp))
        last = (tl.arange(0, BLOCK) == BLOCK - 1)[:, None]
        carry = tl.sum(tl.where(last, tile, tl.zeros_like(tile)), 0)
        if not TOTALS:
            tl.store(out + at, tile.to(out.dtype.element_ty), live)
    if TOTALS:
        tl.store(out + (before * tl.num_programs(1) + cut) * behind + column, carry, line < lines)


@jit
def extreme_kernel(
    x,
    out,
    places,
    lines,
    n,
    behind,
    LARGEST: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    line = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    if not WIDE:
        line = line.to(tl.int32)
    first = line // behind * n * behind + line % behind
    carry = tl.load(x + first, line < lines, 0)
    carry_at = tl.zeros([LANES], tl.int64)
    for begin in range(0, n, BLOCK):
        row = (begin + tl.arange(0, BLOCK)).to(line.dtype)
        live = (row < n)[:, None] & (line < lines)[None, :]
        at = first[None, :] + (row * behind)[:, None]
        tile = tl.load(x + at, live, 0)
        tile_at = tl.zeros_like(at).to(tl.int64) + row[:, None]
        before, before_at = tl.broadcast_to(carry[None, :], tile.shape), tl.broadcast_to(carry_at[None, :], tile.shape)
        if LARGEST:
            tile, tile_at = tl.associative_scan((tile, tile_at), 0, later_largest)
            tile, tile_at = later_largest(before, before_at, tile, tile_at)
        else:
            tile, tile_at = tl.associative_scan((tile, tile_at), 0, later_smallest)
            tile, tile_at = later_smallest(before, before_at, tile, tile_at)
        last = (tl.arange(0, BLOCK) == BLOCK - 1)[:, None]
        carry = tl.sum(tl.where(last, tile, tl.zeros_like(tile)), 0).to(carry.dtype)
        carry_at = tl.sum(tl.where(last, tile_at, 0), 0)
        tl.store(out + at, tile, live)
        tl.store(places + at, tile_at, live)


def tiles(n: int, lines: int, behind: int, tile: int) -> tuple[int, int]:
    """The block of the dimension and the number of lines of a tile: neighbours in memory come first."""
    if behind == 1:
        block = min(triton.next_power_of_2(n), tile)
        return block, min(tile // block, triton.next_power_of_2(lines))
    lanes = min(triton.next_power_of_2(lines), 64, tile)
    return min(triton.next_power_of_2(n), tile // lanes), lanes


def scanned(x: torch.Tensor, dim: int, dtype: torch.dtype, op: str, config: Mapping[str, Any]) -> torch.Tensor:
    """The scan of `x`, as a compact tensor of `dtype`."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    if x.numel() == 0:
        return out
    before, n, behind = around(x.shape, positive(dim, x.dim()))
    lines, work = before * behind, WORKING.get(dtype, tl.int64)
    block, lanes = tiles(n, lines, behind, config["TILE"])
    groups = triton.cdiv(lines, lanes)
    part = max(LEAST, triton.cdiv(n, block * max(1, ENOUGH // groups))) * block
    cuts = triton.cdiv(n, part)
    rules = {
        "OP": op,
        "WORK": work,
        "WIDE": is_far(x),
        "BLOCK": block,
        "LANES": lanes,
        "num_warps": config["num_warps"],
    }
    starts = x
    if cuts > 1:
        held = {tl.float32: torch.float32, tl.float64: torch.float64}.get(work, torch.int64)
        totals = torch.empty((before, cuts, behind), dtype=held, device=x.device)
        scan_kernel[(groups, cuts)](x, totals, x, lines, n, behind, part, TOTALS=True, STARTED=False, **rules)
        starts = scanned(totals, 1, held, op, config)
    scan_kernel[(groups, cuts)](x, out, starts, lines, n, behind, part, TOTALS=False, STARTED=cuts > 1, **rules)
    return out


def summing(x: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Whole numbers are added up in int64."""
    return dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)


@launches(aten.cumsum.default, configs=CONFIGS)
def cumsum(x, dim, dtype, *, config):
    return scanned(cast(x, dtype), dim, summing(x, dtype), "sum", config)


@launches(aten.cumprod.default, configs=CONFIGS)
def cumprod(x, dim, dtype, *, config):
    return scanned(cast(x, dtype), dim, summing(x, dtype), "product", config)


def cast(x: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Torch casts the elements before it adds them up. The kernel itself loses nothing when it reads."""
    loses = dtype is not None and x.dtype.is_floating_point and dtype != torch.float64
    return x.to(dtype) if loses else x


def whole_numbers(x: torch.Tensor) -> str | None:
    return None if x.dtype.is_floating_point else f"{x.dtype} is not supported"


@launches(aten.logcumsumexp.default, configs=CONFIGS, refuses=whole_numbers)
def logcumsumexp(x, dim, *, config):
    return scanned(x, dim, x.dtype, "logsumexp", config)


@launches(aten.cummax.default, configs=CONFIGS)
def cummax(x, dim, *, config):
    return extremes(x, dim, True, config)


@launches(aten.cummin.default, configs=CONFIGS)
def cummin(x, dim, *, config):
    return extremes(x, dim, False, config)


def extremes(x: torch.Tensor, dim: int, largest: bool, config: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The running extreme and where it stands; of equal ones the last, and NaN before all others."""
    x = x.contiguous()
    out, places = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)
    if x.numel():
        before, n, behind = around(x.shape, positive(dim, x.dim()))
        block, lanes = tiles(n, before * behind, behind, config["TILE"])
        held = (x.to(torch.uint8), out.view(torch.uint8)) if x.dtype == torch.bool else (x, out)
        extreme_kernel[(triton.cdiv(before * behind, lanes),)](
            *held, places, before * behind, n, behind,
            LARGEST=largest, WIDE=is_far(x), BLOCK=block, LANES=lanes, num_warps=config["num_warps"],
        )  # fmt: skip
    return out, places
