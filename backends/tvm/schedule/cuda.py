"""Schedule a kernel for a GPU: blocks and threads over rows and columns, patches of 16 bytes, sums in a fixed order.

What several walks over a row read is read once and held in registers, if a thread's part of the row is small enough.
The order of a sum depends on the sizes alone, so a result is the same at each run.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tvm import tirx

from bridge.backends.tvm.index import Index
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.schedule.axes import laid_out
from bridge.backends.tvm.schedule.grid import gridded, is_whole, unconditional
from bridge.backends.tvm.schedule.keep import kept
from bridge.backends.tvm.schedule.near import eased
from bridge.backends.tvm.schedule.nest import Reduction, Store, nest_of
from bridge.backends.tvm.schedule.parameters import Scheduled
from bridge.backends.tvm.schedule.patches import PatchWriter
from bridge.backends.tvm.schedule.share import Share, Total
from bridge.backends.tvm.schedule.threads import MEMORY, ROLLED
from bridge.backends.tvm.schedule.turn import SIDE, Tile, Turned, Walk, tiled
from bridge.backends.tvm.schedule.vector import Lanes

REGISTERS = 96
"""Elements that a thread holds at most of what several walks read."""

ALL_REGISTERS = 1 << 16
"""Registers of a multiprocessor, of which a block that leaves its threads too few would have to do without."""

LEAST_HELD = 4
"""One of so many trips at least stays in registers, if any does: what does not is to be found in the cache."""

AT_ONCE = 4
"""Trips along the columns whose reads are on their way together."""


def scheduled(kernel: Kernel, name: str, unaligned: Collection[str] = ()) -> Scheduled:
    """The kernel as blocks of threads. unaligned: names of values that need not begin on 16 bytes."""
    nest = laid_out(eased(nest_of(kernel)))
    tile = None if kernel.into else tiled(nest)
    return _Writer(tile.grid if tile else gridded(nest), kernel, name, unaligned, tile).write()


class _Writer(PatchWriter):
    """Finds the rows of a thread and walks over their columns, or through a tile."""

    def write(self) -> Scheduled:
        grid = self._grid
        groups = self._extents(grid.groups)
        together = grid.beside * grid.patches * (self._tile.trips if self._tile else 1)
        blocks = self._extents((grid.groups + (together - 1)) // together)
        if grid.groups.constant is None:
            blocks = tirx.Max(blocks, self._number(1))
        with (
            self._code.thread("blockIdx.x", blocks) as block,
            self._code.thread("threadIdx.x", self._number(grid.threads)) as thread,
        ):
            if self._tile:
                self._turned(self._tile, block, thread)
            else:
                (self._thread if grid.patches == 1 else self._several)(block, thread, groups)
        return self._parameters.scheduled(self._name, list(self._wide))

    # Where a thread works --------------------------------------------------------------------------------------------

    def _thread(self, block: Any, thread: Any, groups: Any) -> None:
        """Find the rows of a thread, and do them. Threads without any repeat the last ones, since barriers want all.

        What they would write over an input were made from what others have written there: they write nothing.
        """
        grid = self._grid
        self._share = Share(self._code, self._emit, grid, thread)
        group = block if grid.beside == 1 else block * self._number(grid.beside) + self._share.row
        constant = grid.groups.constant
        missing = constant is None or constant % grid.beside != 0
        beyond = group < groups if missing and (constant is None or grid.across == 1) else None
        if missing and beyond is None:
            self._own = group < groups if self._into else None
            group = tirx.Min(group, groups - self._number(1))
        with self._code.where(beyond):
            self._place(grid.rows, self._bound(group))
            self._row()

    def _several(self, block: Any, thread: Any, groups: Any) -> None:
        """Patches of a kernel without columns, a few for each thread, whose reads are on their way together."""
        grid, each = self._grid, self._number(self._grid.patches)
        self._share = Share(self._code, self._emit, grid, thread)
        with self._code.loop(each, unrolled=True) as patch:
            group = (block * each + patch) * self._number(grid.beside) + thread
            with self._code.where(group < groups):
                self._place(grid.rows, self._bound(group))
                self._row()

    def _turned(self, tile: Tile, block: Any, thread: Any) -> None:
        """A tile that is read along one axis and written along another."""
        self._share = Share(self._code, self._emit, self._grid, thread)
        self._place(tile.blocks, block)
        kept = [self._code.shared(MEMORY.get(t.load.dtype, t.load.dtype), SIDE * (SIDE + 1)) for t in tile.turned]
        for _ in self._through(tile, tile.reading, thread):
            for turned, shared in zip(tile.turned, kept, strict=True):
                self._put_in_tile(turned, tile.reading, shared)
        self._code.barrier()
        for turned, shared in zip(tile.turned, kept, strict=True):
            self._emit.registers[turned.load.value, turned.load.index] = shared, turned.place
        for _ in self._through(tile, tile.writing, thread):
            self._elements([s.body for s in self._nest.stores], self._nest.stores, True)

    def _through(self, tile: Tile, walk: Walk, thread: Any) -> Iterator[None]:
        """For each patch of a thread in a tile."""
        with self._code.loop(self._number(tile.trips), unrolled=True) as trip:
            self._place(walk.axes, self._bound(trip * self._number(self._grid.threads) + thread))
            self._set(walk.patch, self._number(0))
            below = [self._emit.index(position) < self._number(extent) for position, extent in walk.limits]
            with self._code.where(tirx.all(*below) if below else None):
                yield

    def _put_in_tile(self, turned: Turned, walk: Walk, shared: Any) -> None:
        value, patch = turned.load.value, walk.patch
        source, width = self._parameters.flat[value], self._grid.width
        if value.name not in self._unaligned and is_whole(turned.offset, patch):
            self._wide[value] = None
            buffer = self._code.local(MEMORY.get(value.dtype, value.dtype), width)
            self._move(value, buffer, Index({}), source, turned.offset - Index.of(patch))
            source, where = buffer, Index.of(patch)
        else:
            where = turned.offset
        with self._code.loop(self._number(width), unrolled=True) as element:
            self._set(patch, element)
            read = tirx.BufferLoad(source, [self._emit.index(where)])
            self._code.add(tirx.BufferStore(shared, read, [self._emit.index(walk.place)]))

    # One row ---------------------------------------------------------------------------------------------------------

    def _row(self) -> None:
        """All that is computed for a row, or a patch of rows: level by level, then what is left to store."""
        self._depth_of_row = self._code.depth
        self._of_row, self._walks = {}, 0
        self._held = self._trips_held()
        for level in range(1, self._top + 1):
            reductions = [r for r in self._nest.reductions if r.level == level]
            self._walk(reductions, [s for s in self._nest.stores if s.over_columns and s.level == level - 1])
        last = [s for s in self._nest.stores if s.over_columns and s.level == self._top]
        if not self._into:
            self._single()
        if last:
            with self._code.where(self._own):
                self._walk([], last)
        if self._into:  # the last walk may read what these replace
            if last and self._grid.across > 1:
                self._code.barrier()
            with self._code.where(self._own):
                self._single()

    def _single(self) -> None:
        """Store what a row has one of."""
        single = [s for s in self._nest.stores if not s.over_columns]
        if single:
            with self._code.where(self._share.is_first()):
                self._elements([s.body for s in single], single, self._grid.in_rows)

    def _trips_held(self) -> int:
        """How many trips' part of a row stays in registers from one walk to the next: all, a good part, or none."""
        grid = self._grid
        walks = self._top + any(s.over_columns and s.level == self._top for s in self._nest.stores)
        if not grid.nest.cols or grid.trips is None or walks < 2:
            return 0
        loads = [n for n in unconditional(self._nest.scalars) if self._by_column(n)]
        room = min(REGISTERS, ALL_REGISTERS // grid.threads // 2)
        of_a_trip = len(loads) * grid.width
        fit = min(grid.trips, room // max(of_a_trip, 1))
        if fit * LEAST_HELD < grid.trips:
            return 0
        self._held = fit
        if fit == grid.trips:
            own = grid.trips * grid.width
            dear = kept(self._nest, Lanes(None, 1))[: (room - of_a_trip * fit) // own]
            self._emit.keep(dear, self._place_in_registers(), own)
        return fit

    def _walk(self, reductions: Sequence[Reduction], stores: Sequence[Store]) -> None:
        """One walk over the columns for the reductions of a level, and the results that are ready by then."""
        self._emit.next_walk()
        totals = [Total(self._share, r) for r in reductions]
        roots = [*(r.body for r in reductions), *(s.body for s in stores)]
        for _ in self._trips():
            self._elements(roots, stores, True, [total.add for total in totals])
        for total in totals:
            total.close()

    def _trips(self) -> Iterator[None]:
        """Go along the columns: each walk the other way, so that it begins with what is in the cache."""
        if not self._grid.cols:
            self._set(self._slot, self._number(0))
            yield
            return
        back = self._walks % 2 == 1 and self._grid.trips is not None
        self._walks += 1
        for part in (self._unheld, self._in_registers) if back else (self._in_registers, self._unheld):
            yield from part(back)

    def _in_registers(self, _: bool) -> Iterator[None]:
        """The trips whose part of the row stays in registers."""
        if not self._held:
            return
        grid, before = self._grid, self._emit.registers
        self._emit.registers, self._holds = {**before, **self._of_row}, True
        is_ragged = self._held == grid.trips and grid.columns % grid.across != 0
        with self._code.loop(self._number(self._held), unrolled=True) as trip:
            yield from self._trip(trip, is_ragged)
        self._of_row = {key: at for key, at in self._emit.registers.items() if key not in before}
        self._emit.registers, self._holds = before, False

    def _unheld(self, back: bool) -> Iterator[None]:
        """The other trips, a few at once."""
        grid, columns = self._grid, self._grid.columns - self._held * self._grid.across
        if grid.trips is not None and self._held == grid.trips:
            return
        whole, rest = columns // (grid.across * AT_ONCE), columns % (grid.across * AT_ONCE)
        for part in (self._rest, self._whole) if back else (self._whole, self._rest):
            yield from part(whole, rest, back)

    def _whole(self, whole: Index, _: Index, back: bool) -> Iterator[None]:
        if whole == 0:
            return
        loop, few = self._code.loop, self._number(AT_ONCE)
        with loop(self._extents(whole), stem=ROLLED) as outer, loop(few, unrolled=True) as inner:
            group = self._extents(whole - 1) - outer if back else outer
            yield from self._trip(group * few + inner + self._number(self._held), False)

    def _rest(self, whole: Index, rest: Index, _: bool) -> Iterator[None]:
        across = self._grid.across
        if rest != 0:
            with self._code.loop(self._extents((rest + (across - 1)) // across)) as inner:
                yield from self._trip(self._extents(whole * AT_ONCE + self._held) + inner, rest % across != 0)

    def _trip(self, trip: Any, is_ragged: bool) -> Iterator[None]:
        grid = self._grid
        self._set(self._slot, trip)
        column = trip if grid.across == 1 else trip * self._number(grid.across) + self._share.lane
        with self._code.where(column < self._extents(grid.columns) if is_ragged else None):
            self._place(grid.cols, self._bound(column) if len(grid.cols) > 1 else column)
            yield
