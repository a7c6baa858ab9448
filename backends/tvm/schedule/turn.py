"""Turn memory around in tiles, where a kernel reads along one axis and writes along another, as in a transpose.

A block reads a square tile along the one, keeps it in memory that its threads share, and writes it along the other. A
row of the shared tile is one element longer than the side, so that a column of it lies in different banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from bridge.backends.tvm.index import Axis, Index, points
from bridge.backends.tvm.scalar import Load, Rewriter
from bridge.backends.tvm.schedule.grid import LARGE, Grid, unconditional
from bridge.backends.tvm.schedule.nest import Nest
from bridge.backends.tvm.schedule.vector import width

SIDE, THREADS, WIDTH = 64, 256, 4
"""Elements of a side, threads of a block, and elements of a patch."""

SHARED = 48 << 10
"""Bytes that the threads of a block share at most."""

LEAST = 1 << 18
"""Elements from which on there are tiles enough for all multiprocessors."""


@dataclass(frozen=True)
class Turned:
    """A load as it is in the nest, where it lies in memory by the axes of reading, and where in the shared tile."""

    load: Load
    offset: Index
    place: Index


@dataclass(frozen=True)
class Walk:
    """A way through a tile: the axes that threads share, the patch, where it goes in the tile, and what to stay below:
    positions along an axis, with its extent, where tiles reach over the end."""

    axes: tuple[Axis, ...]
    patch: Axis
    place: Index
    limits: tuple[tuple[Index, int], ...]


@dataclass(frozen=True)
class Tile:
    """grid: of the walk that writes. blocks: the axes of which each block has one place."""

    grid: Grid
    blocks: tuple[Axis, ...]
    reading: Walk
    writing: Walk
    turned: tuple[Turned, ...]

    @property
    def trips(self) -> int:
        """Patches of a thread."""
        return SIDE * SIDE // WIDTH // THREADS


def tiled(nest: Nest) -> Tile | None:
    """The tiles of a nest, if it reads much along another axis than it writes along."""
    along = _written_along(nest)
    if nest.cols or along is None or (nest.elements.constant or 0) < LEAST:
        return None
    loads = {axis: _held(_turned(nest, along, axis)) for axis in nest.rows if axis is not along and _fits(axis)}
    axis = max(loads, key=lambda a: len(loads[a]), default=None)
    return None if axis is None or not loads[axis] else _tile(nest, along, axis, loads[axis])


def _written_along(nest: Nest) -> Axis | None:
    """The axis along which all results are contiguous."""
    found = (a for a in nest.rows if _fits(a) and all(s.offset.coefficient(a) == 1 for s in nest.stores))
    return next(found, None)


def _fits(axis: Axis) -> bool:
    extent = axis.extent.constant or 0
    return extent * 2 >= SIDE and extent % WIDTH == 0


def _turned(nest: Nest, along: Axis, axis: Axis) -> list[Load]:
    """What is large, contiguous along the axis and not along the one that is written along."""
    loads = unconditional(nest.scalars)
    most = max((value.numel.constant or 0 for value in (s.value for s in nest.stores)), default=0)
    found: list[Load] = []
    for load in loads:
        offset = load.value.offset(load.index)
        step = offset.coefficient(along)
        large = (load.value.numel.constant or 0) * LARGE >= most
        if large and offset.coefficient(axis) == 1 and step is not None and (step.constant or 0) > 1:
            found += [] if any(map(points, load.index)) else [load]
    return found


def _held(loads: list[Load]) -> list[Load]:
    """As many of the loads as there is room for beside one another. The others are read as they are."""
    ends = accumulate(SIDE * (SIDE + 1) * width(load.dtype) for load in loads)
    return [load for load, end in zip(loads, ends, strict=True) if end <= SHARED]


def _tile(nest: Nest, along: Axis, axis: Axis, loads: list[Load]) -> Tile:
    outer = {a: Axis(f"{a.name}o", Index.of(-(-(a.extent.constant or 0) // SIDE))) for a in (axis, along)}
    blocks = (*(a for a in nest.rows if a not in outer), *outer.values())
    into, walks = {}, {}
    for patched, whole in ((axis, along), (along, axis)):
        quarter, patch = Axis(f"{patched.name}q", Index.of(SIDE // WIDTH)), Axis(f"{patched.name}p", Index.of(WIDTH))
        single = Axis(f"{whole.name}i", Index.of(SIDE))
        inside = {patched: Index.of(quarter) * WIDTH + Index.of(patch), whole: Index.of(single)}
        into[patched] = {a: Index.of(outer[a]) * SIDE + inside[a] for a in outer}
        limits = tuple(
            (position, a.extent.constant or 0) for a, position in into[patched].items() if a.extent % SIDE != 0
        )
        place = inside[along] * (SIDE + 1) + inside[axis]
        walks[patched] = Walk((single, quarter), patch, place, limits)
    reading, writing = walks[axis], walks[along]
    rows = (*blocks, *writing.axes, writing.patch)
    grid = Grid(nest.rewritten(into[along], rows, ()), writing.patch, True, 1, THREADS)
    read, write = Rewriter(into[axis]), Rewriter(into[along])
    turned = tuple(
        Turned(Load(n.value, tuple(map(write.index, n.index))), read.index(n.value.offset(n.index)), writing.place)
        for n in loads
    )
    return Tile(grid, blocks, reading, writing, turned)
