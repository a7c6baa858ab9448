"""Write the code of a patch of elements: read what it needs, compute its elements one by one, and write them.

What lies next to one another in memory is moved 16 bytes at once. Registers hold what was read, for as long as a patch
takes, or for all walks over a row.
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
from bridge.backends.tvm.schedule.grid import Grid, is_whole, unconditional
from bridge.backends.tvm.schedule.nest import Store
from bridge.backends.tvm.schedule.parameters import Extents, Parameters
from bridge.backends.tvm.schedule.share import Share
from bridge.backends.tvm.schedule.threads import MEMORY, ThreadCode, ThreadEmitter
from bridge.backends.tvm.schedule.turn import Tile
from bridge.backends.tvm.schedule.vector import width

WIDEST = 16
"""Bytes that are moved at once."""


class PatchWriter:
    """What is common to all ways through a kernel: the axes are set, a patch is read, computed and written."""

    _share: Share

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
        self._holds, self._walks = False, 0
        self._of_row: dict[Any, Any] = {}
        self._own: Any = None
        self._unaligned = unaligned
        self._wide: dict[Value, None] = {}

    def _integer(self) -> str:
        """Positions take 64 bits where 32 may not be enough."""
        made = self._parameters
        reaches = [value.reach.constant for value in (*made.inputs, *made.outputs)]
        elements = self._nest.elements.constant
        small = all(n is not None and n < 1 << 30 for n in [*reaches, elements])
        return "int32" if small and not made.sizes else "int64"

    def _number(self, value: int) -> Any:
        return self._emit.number(value)

    # Where the code is -----------------------------------------------------------------------------------------------

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

    def _by_column(self, node: Scalar) -> bool:
        return bool(self._emit.used(node).intersection(self._nest.cols))

    def _by_patch(self, node: Scalar) -> bool:
        return self._grid.patch in self._emit.used(node)

    def _place_in_registers(self) -> Index:
        """Where a thread holds an element of its part of a row."""
        return Index.of(self._slot) * self._grid.width + self._place_in_patch()

    def _place_in_patch(self) -> Index:
        return Index({}) if self._grid.patch is None else Index.of(self._grid.patch)

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
            again = self._holds and self._by_column(load)
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
