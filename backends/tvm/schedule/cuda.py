"""Schedule a kernel for a GPU: blocks and threads over rows and columns, patches of 16 bytes, sums in a fixed order.

What several walks over a row read is read once and held in registers, if a thread's part of the row is small enough.
The order of a sum depends on the sizes alone, so a result is the same at each run.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from bridge.backends.tvm.index import Axis, Index, points
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import Load, Scalar
from bridge.backends.tvm.schedule.axes import laid_out
from bridge.backends.tvm.schedule.grid import Grid, gridded, is_whole, unconditional
from bridge.backends.tvm.schedule.keep import kept
from bridge.backends.tvm.schedule.near import eased
from bridge.backends.tvm.schedule.nest import Reduction, Store, nest_of
from bridge.backends.tvm.schedule.parameters import Extents, Parameters, Scheduled
from bridge.backends.tvm.schedule.share import Share, Total
from bridge.backends.tvm.schedule.threads import MEMORY, ThreadCode, ThreadEmitter
from bridge.backends.tvm.schedule.turn import SIDE, Tile, Turned, Walk, tiled
from bridge.backends.tvm.schedule.vector import Lanes, width

REGISTERS = 96
"""Elements that a thread holds at most of what several walks read."""

ALL_REGISTERS = 1 << 16
"""Registers of a multiprocessor, of which a block that leaves its threads too few would have to do without."""

AT_ONCE = 4
"""Trips along the columns whose reads are on their way together."""

WIDEST = 16
"""Bytes that are moved at once."""


def scheduled(kernel: Kernel, name: str, unaligned: Collection[str] = ()) -> Scheduled:
    """The kernel as blocks of threads. unaligned: names of values that need not begin on 16 bytes."""
    nest = laid_out(eased(nest_of(kernel)))
    tile = None if kernel.into else tiled(nest)
    return _Writer(tile.grid if tile else gridded(nest), kernel, name, unaligned, tile).write()


class _Writer:
    def __init__(
        self, grid: Grid, kernel: Kernel, name: str, unaligned: Collection[str], tile: Tile | None = None
    ) -> None:
        self._grid, self._nest, self._name, self._tile = grid, grid.nest, name, tile
        self._into = kernel.into
        self._code = ThreadCode()
        self._parameters = Parameters(grid.nest, kernel.stored, self._code, MEMORY, kernel.into)
        integer = self._integer()
        self._emit = ThreadEmitter(self._code, self._parameters.flat, self._parameters.sizes, grid.nest.rows, integer)
        self._emit.count(grid.nest.scalars)
        self._extents = Extents(self._parameters.sizes, integer)
        self._top = max([r.level for r in grid.nest.reductions], default=0)
        self._slot = Axis("slot", Index.of(1))
        self._held, self._depth_of_row = 0, 1
        self._own: Any = None
        self._unaligned = unaligned
        self._wide: dict[Value, None] = {}

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

    def _integer(self) -> str:
        """Positions take 64 bits where 32 may not be enough."""
        made = self._parameters
        reaches = [value.reach.constant for value in (*made.inputs, *made.outputs)]
        elements = self._nest.elements.constant
        small = all(n is not None and n < 1 << 30 for n in [*reaches, elements])
        return "int32" if small and not made.sizes else "int64"

    def _number(self, value: int) -> Any:
        return self._emit.number(value)

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

    def _place(self, axes: Sequence[Axis], position: Any) -> None:
        """Set axes from their common row-major position."""
        for axis in reversed(axes[1:]):
            extent = self._extents(axis.extent)
            self._set(axis, self._bound(tirx.FloorMod(position, extent)))
            position = self._bound(tirx.FloorDiv(position, extent))
        for axis in axes[:1]:
            self._set(axis, position)

    def _bound(self, expr: Any) -> Any:
        return expr if isinstance(expr, tirx.Var) else self._emit.bind(expr, self._code.depth)

    def _set(self, axis: Axis, expr: Any) -> None:
        self._emit.axes[axis] = expr
        self._emit.depths[axis] = self._code.depth

    # One row ---------------------------------------------------------------------------------------------------------

    def _row(self) -> None:
        """All that is computed for a row, or a patch of rows: level by level, then what is left to store."""
        self._depth_of_row = self._code.depth
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
        """How many trips' part of a row stays in registers from one walk to the next: all or none."""
        grid = self._grid
        walks = self._top + any(s.over_columns and s.level == self._top for s in self._nest.stores)
        if not grid.nest.cols or grid.trips is None or walks < 2:
            return 0
        loads = [n for n in unconditional(self._nest.scalars) if self._by_column(n)]
        own = grid.trips * grid.width
        room = min(REGISTERS, ALL_REGISTERS // grid.threads // 2)
        if len(loads) * own > room:
            return 0
        self._held = grid.trips
        dear = kept(self._nest, Lanes(None, 1))[: (room - len(loads) * own) // own]
        self._emit.keep(dear, self._place_in_registers(), own)
        return grid.trips

    def _by_column(self, node: Scalar) -> bool:
        return bool(self._emit.used(node).intersection(self._nest.cols))

    def _by_patch(self, node: Scalar) -> bool:
        return self._grid.patch in self._emit.used(node)

    def _place_in_registers(self) -> Index:
        """Where a thread holds an element of its part of a row."""
        return Index.of(self._slot) * self._grid.width + self._place_in_patch()

    def _place_in_patch(self) -> Index:
        return Index({}) if self._grid.patch is None else Index.of(self._grid.patch)

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
        """Go along the columns."""
        grid, columns = self._grid, self._grid.columns
        if not grid.cols:
            self._set(self._slot, self._number(0))
            yield
        elif self._held:
            with self._code.loop(self._number(self._held), unrolled=True) as trip:
                yield from self._trip(trip, columns % grid.across != 0)
        else:
            whole, rest = columns // (grid.across * AT_ONCE), columns % (grid.across * AT_ONCE)
            if whole != 0:
                loop, few = self._code.loop, self._number(AT_ONCE)
                with loop(self._extents(whole)) as outer, loop(few, unrolled=True) as inner:
                    yield from self._trip(outer * few + inner, False)
            if rest != 0:
                with self._code.loop(self._extents((rest + (grid.across - 1)) // grid.across)) as inner:
                    trip = self._extents(whole * AT_ONCE) + inner
                    yield from self._trip(trip, rest % grid.across != 0)

    def _trip(self, trip: Any, is_ragged: bool) -> Iterator[None]:
        grid = self._grid
        self._set(self._slot, trip)
        column = trip if grid.across == 1 else trip * self._number(grid.across) + self._share.lane
        with self._code.where(column < self._extents(grid.columns) if is_ragged else None):
            self._place(grid.cols, self._bound(column) if len(grid.cols) > 1 else column)
            yield

    # Elements --------------------------------------------------------------------------------------------------------

    def _elements(
        self, roots: Sequence[Scalar], stores: Sequence[Store], patched: bool, more: Sequence[Callable[[], None]] = ()
    ) -> None:
        """Read what a patch needs, compute its elements one by one, and write. patched: there are several."""
        before = self._emit.registers
        self._emit.registers = dict(before)
        held = self._read(roots)
        outgoing = {s.value: self._leaving(s.value) for s in stores if self._is_whole(s.value, s.offset)}
        with self._patch(patched):
            for store in stores:
                self._store(store, outgoing.get(store.value))
            for take in more:
                take()
        for store in stores:
            if store.value in outgoing:
                if store.value in self._into:
                    self._wide[self._into[store.value]] = None
                to = self._parameters.flat[store.value]
                first = store.offset - self._place_in_patch()
                self._move(store.value, to, first, outgoing[store.value], Index({}))
        self._emit.registers = {**before, **held}

    @contextmanager
    def _patch(self, patched: bool = True) -> Iterator[None]:
        """For each element of a patch."""
        patch = self._grid.patch
        if patch is None or not patched:
            yield
            return
        with self._code.loop(self._number(self._grid.width), unrolled=True) as variable:
            self._set(patch, variable)
            self._share.at(variable)
            yield

    def _read(self, roots: Sequence[Scalar]) -> dict[Any, Any]:
        """Bring into registers what lies in memory as patches do, and all that later walks read again: the result."""
        held: dict[Any, Any] = {}
        for load in unconditional(roots):
            key, offset = (load.value, load.index), load.value.offset(load.index)
            again = bool(self._held) and self._by_column(load)
            whole = self._is_whole(load.value, offset)
            if key in self._emit.registers or not (whole or again):
                continue
            in_patch = self._by_patch(load)
            count = (self._grid.width if in_patch else 1) * (self._held if again else 1)
            depth = self._depth_of_row if again else None
            buffer = self._code.local(MEMORY.get(load.dtype, load.dtype), count, depth)
            place = self._place_in_patch() if in_patch else Index({})
            if again:
                place = place + Index.of(self._slot) * (count // self._held)
            if whole:
                self._wide[load.value] = None
                self._move(load.value, buffer, place - self._place_in_patch(), self._parameters.flat[load.value],
                           self._first_of(load))  # fmt: skip
            else:
                with self._patch(in_patch):
                    where = self._emit.index(place)
                    self._code.add(tirx.BufferStore(buffer, self._emit.raw(load), [where]))
            self._emit.registers[key] = buffer, place
            if again:
                held[key] = buffer, place
        return held

    def _is_whole(self, value: Value, offset: Index) -> bool:
        """Whether a patch of the value can be moved at once."""
        patch = self._grid.patch
        return patch is not None and value.name not in self._unaligned and is_whole(offset, patch)

    def _leaving(self, value: Value) -> Any:
        """Registers for the elements of a patch that go to memory together."""
        return self._code.local(MEMORY.get(value.dtype, value.dtype), self._grid.width)

    def _store(self, store: Store, outgoing: Any | None) -> None:
        what = self._emit.in_memory(store.body, store.value.dtype, outgoing is not None)
        to = self._parameters.flat[store.value] if outgoing is None else outgoing
        where = store.offset if outgoing is None else self._place_in_patch()
        self._code.add(tirx.BufferStore(to, what, [self._emit.index(where)]))

    def _points_by_patch(self, load: Load) -> bool:
        """Whether data points at each element of a patch by itself: held inside one by one, they are no neighbours."""
        patch = self._grid.patch
        return patch is not None and any(index.uses(patch) for index in load.index if points(index))

    def _first_of(self, load: Load) -> Index | Any:
        """Where the first element of a patch lies: an index, or an expression that holds what data points at inside."""
        patch = self._grid.patch
        if patch is None or not any(map(points, load.index)):
            return load.value.offset(load.index) - self._place_in_patch()
        self._set(patch, self._number(0))
        first = self._bound(self._emit.place(load))
        del self._emit.axes[patch], self._emit.depths[patch]
        return first

    def _move(self, value: Value, to: Any, to_first: Index | Any, source: Any, from_first: Index | Any) -> None:
        """Move a patch, 16 bytes at once at most."""
        together = min(self._grid.width, WIDEST // width(MEMORY.get(value.dtype, value.dtype)))
        for first in range(0, self._grid.width, together):
            places = [tirx.Ramp(self._after(at, first), self._number(1), together) for at in (to_first, from_first)]
            self._code.add(tirx.BufferStore(to, tirx.BufferLoad(source, [places[1]]), [places[0]]))

    def _after(self, place: Index | Any, count: int) -> Any:
        """So many elements after a place."""
        if isinstance(place, Index):
            return self._emit.index(place + count)
        return place + self._number(count) if count else place
