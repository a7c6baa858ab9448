"""Sort rows, and find their largest elements: bitonic, in registers.

What is sorted is one whole number for each element: its order in the high bits, and in the low ones its place,
counted from the end. So no two are equal, the sort is stable, and the places come with it. Values are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit
from bridge.backends.triton.kernels.layout import is_far
from bridge.backends.triton.table import launches
from bridge.ir.shapes import positive

aten = torch.ops.aten

LONGEST = 4096
"""Elements of a row that is sorted in registers."""

MOST = 256
"""Largest elements that are kept from tile to tile."""

SORTS = (
    {"ROWS": 1, "num_warps": 1},
    {"ROWS": 1, "num_warps": 4},
    {"ROWS": 1, "num_warps": 8},
    {"ROWS": 4, "num_warps": 4},
)
PICKS = (
    {"TILE": 512, "ROWS": 1, "num_warps": 1},
    {"TILE": 1024, "ROWS": 1, "num_warps": 4},
    {"TILE": 4096, "ROWS": 1, "num_warps": 8},
    {"TILE": 512, "ROWS": 4, "num_warps": 4},
)


@jit
def packed(value, place, live, LARGEST: tl.constexpr, WORK: tl.constexpr, BITS: tl.constexpr):
    """The number that stands for an element: the larger, the further in front. NaN is above infinity; −0 equals 0."""
    if value.dtype.is_floating():
        if value.dtype == tl.float16:
            bits, most = value.to(tl.int16, bitcast=True).to(tl.int32), 0x7FFF
        elif value.dtype == tl.bfloat16:
            value = value.to(tl.float32)
            bits, most = value.to(tl.int32, bitcast=True) >> 16, 0x7FFF
        else:
            bits, most = value.to(tl.int32, bitcast=True), 0x7FFFFFFF
        bits = tl.where(value != value, most, tl.where(value == 0, 0, bits))
        order = tl.where(bits < 0, bits ^ most, bits).to(WORK)
    else:
        order = value.to(WORK)
    if not LARGEST:
        order = ~order
    low = (1 << BITS) - 1
    return tl.where(live, (order << BITS) | (low - place).to(WORK), -(1 << (2 * BITS - 1)))


@jit
def sort_kernel(
    x,
    values,
    places,
    rows,
    n,
    kept,
    LARGEST: tl.constexpr,
    WORK: tl.constexpr,
    BITS: tl.constexpr,
    PICKED: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """PICKED: 0 to sort rows that fit in a tile; else, a power of two, how many are kept from tile to tile."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    if not WIDE:
        row = row.to(tl.int32)
    there = (row < rows)[:, None]
    column = tl.arange(0, TILE)[None, :]
    live = there & (column < n)
    best = packed(tl.load(x + row[:, None] * n + column, live, 0), column, live, LARGEST, WORK, BITS)
    if PICKED == 0:
        best = tl.sort(best, descending=True)
        count: tl.constexpr = TILE
    else:
        count: tl.constexpr = PICKED
        best = tl.topk(best, PICKED)
        for begin in range(TILE, n, TILE):
            live = there & (begin + column < n)
            more = tl.load(x + row[:, None] * n + begin + column, live, 0)
            more = tl.topk(packed(more, begin + column, live, LARGEST, WORK, BITS), PICKED)
            best = tl.topk(tl.reshape(tl.join(best, more), [ROWS, 2 * PICKED]), PICKED)
    place = (((1 << BITS) - 1) - (best & ((1 << BITS) - 1))).to(tl.int64)
    column = tl.arange(0, count)[None, :]
    live = there & (column < kept)
    at = row[:, None] * kept + column
    tl.store(values + at, tl.load(x + row[:, None] * n + place, live, 0), live)
    tl.store(places + at, place, live)


def sorted_rows(
    x: torch.Tensor, dim: int, kept: int | None, largest: bool, config: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first elements of each row, all of them if `kept` is None, and their places."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    dim = positive(dim, x.dim())
    rows = x.movedim(dim, -1).contiguous()
    n = rows.shape[-1]
    count = n if kept is None else kept
    values = torch.empty((*rows.shape[:-1], count), dtype=x.dtype, device=x.device)
    places = torch.empty_like(values, dtype=torch.int64)
    if values.numel():
        held = (rows, values) if x.dtype != torch.bool else (rows.view(torch.uint8), values.view(torch.uint8))
        narrow = x.dtype.itemsize <= 2 and n < 2**15
        work, bits = (tl.int32, 16) if narrow else (tl.int64, 32)
        picked = 0 if kept is None else max(2, triton.next_power_of_2(kept))
        tile = triton.next_power_of_2(n)
        tile = tile if kept is None else max(2 * picked, min(tile, config["TILE"]))
        number = rows.numel() // n
        options = {name: value for name, value in config.items() if name != "TILE"}
        sort_kernel[(triton.cdiv(number, config["ROWS"]),)](
            *held, places, number, n, count,
            LARGEST=largest, WORK=work, BITS=bits, PICKED=picked, WIDE=is_far(rows), TILE=tile, **options,
        )  # fmt: skip
    return values.movedim(-1, dim), places.movedim(-1, dim)


def wide_types(x: torch.Tensor) -> str | None:
    return f"{x.dtype} with its place is more than 64 bits" if x.dtype.itemsize == 8 else None


def long_rows(x: torch.Tensor, dim: int) -> str | None:
    if x.dim() and not x.shape[dim] <= LONGEST:
        return f"rows of {x.shape[dim]} elements, and {LONGEST} are sorted in registers"
    return wide_types(x)


@launches(aten.sort.default, configs=SORTS, refuses=long_rows, symbolic=False)
def sort(x, dim, descending, *, config):
    return sorted_rows(x, dim, None, descending, config)


@launches(aten.sort.stable, configs=SORTS, refuses=long_rows, symbolic=False)
def sort_stable(x, stable, dim, descending, *, config):
    return sorted_rows(x, dim, None, descending, config)


def large_k(x: torch.Tensor, k: int) -> str | None:
    return f"k={k}, and {MOST} are kept from tile to tile" if k > MOST else wide_types(x)


@launches(aten.topk.default, configs=PICKS, refuses=large_k, symbolic=False)
def topk(x, k, dim, largest, sorted, *, config):
    """Sorted always; of equal elements the first."""
    return sorted_rows(x, dim, k, largest, config)
