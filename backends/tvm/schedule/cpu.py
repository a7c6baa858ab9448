"""Schedule a kernel for a CPU: rows in parallel, one axis in vector lanes, sums in blocks.

A sum of many terms is made of partial sums of a few hundred each, which are added up in float64, in an order that
depends on the sizes alone, so that a result is as exact as torch's and the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from bridge.backends.tvm.index import Axis, Index, product
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.schedule.axes import laid_out
from bridge.backends.tvm.schedule.combine import combined, neutral_of
from bridge.backends.tvm.schedule.emit import Code, Emitter, int64, span
from bridge.backends.tvm.schedule.integers import cast, lanes_of
from bridge.backends.tvm.schedule.keep import kept, place_in_row
from bridge.backends.tvm.schedule.nest import Nest, Reduction, Store, nest_of
from bridge.backends.tvm.schedule.parameters import Extents, Parameters, Scheduled
from bridge.backends.tvm.schedule.tile import tiled
from bridge.backends.tvm.schedule.vector import REGISTER_BYTES, Lanes, vectorised

PARALLEL_FROM = 1 << 15
"""Elements from which on a kernel is worth waking the other threads for."""

BLOCK = 256
"""Terms of a partial sum."""


def scheduled(kernel: Kernel, name: str, step: int = REGISTER_BYTES, nest: Nest | None = None) -> Scheduled:
    """The kernel as loops over rows and lanes. What it writes over an input stands for that input too.

    step: bytes of a value that one step in lanes covers. nest: what is laid out, if it is not the kernel's own.
    """
    nest, lanes = vectorised(laid_out(nest or nest_of(kernel)), step)
    return _Writer(tiled(nest, lanes), lanes, kernel, name).write()


class _Writer:
    def __init__(self, nest: Nest, lanes: Lanes, kernel: Kernel, name: str) -> None:
        self._nest = nest
        self._lanes = lanes
        self._name = name
        self._into = kernel.into
        self._code = Code()
        self._parameters = Parameters(nest, kernel.stored, self._code, {}, kernel.into)
        self._sizes, self._flat = self._parameters.sizes, self._parameters.flat
        self._emit = Emitter(self._code, self._flat, self._sizes, nest.rows, lanes)
        self._emit.count(nest.scalars)
        self._top = max([r.level for r in nest.reductions], default=0)

    def write(self) -> Scheduled:
        if all(axis.extent != 0 for axis in self._nest.rows):
            self._rows(list(self._nest.rows), self._parallel())
        else:
            self._code.add(tirx.Evaluate(int64(0)))  # there is nothing to compute, in no number of lanes
        return self._parameters.scheduled(self._name)

    def _parallel(self) -> bool:
        elements = self._nest.elements.constant
        return elements is None or elements >= PARALLEL_FROM

    # Loops -----------------------------------------------------------------------------------------------------------

    def _rows(self, axes: list[Axis], parallel: bool) -> None:
        if not axes:
            self._row()
            return
        short = axes[0].extent.constant is not None and axes[0].extent.constant < 8
        if parallel and short and len(axes) > 1 and axes[1] is not self._lanes.axis:
            self._fused_rows(axes)
            return
        with_lanes = axes[0] is self._lanes.axis and self._lanes.count > 1
        for _ in self._over(axes[0], with_lanes, parallel):
            self._rows(axes[1:], False)

    def _fused_rows(self, axes: list[Axis]) -> None:
        """The two outermost loops as one, where the first alone is too short to share among threads."""
        outer, inner = axes[0], axes[1]
        extent = self._extent(inner.extent)
        with self._code.loop(self._extent(outer.extent * inner.extent), True) as both:
            self._set(outer, tirx.FloorDiv(both, extent))
            self._set(inner, tirx.FloorMod(both, extent))
            self._rows(axes[2:], False)

    def _over(self, axis: Axis, with_lanes: bool, parallel: bool = False):
        """Loop over an axis, in lanes as far as they go and one by one for the rest. The body is written for each."""
        if not with_lanes:
            with self._code.loop(self._extent(axis.extent), parallel) as variable:
                self._set(axis, variable)
                yield 1
            return
        count = self._lanes.count
        whole, rest = axis.extent // count, axis.extent % count
        if whole != 0:
            with self._code.loop(self._extent(whole), parallel) as variable:
                self._set(axis, variable * int64(count))
                self._emit.width = count
                yield count
                self._emit.width = 1
        if rest != 0:
            with self._code.loop(self._extent(rest)) as variable:
                self._set(axis, self._extent(whole * count) + variable)
                yield 1

    def _set(self, axis: Axis, expr: Any) -> None:
        self._emit.axes[axis] = expr
        self._emit.depths[axis] = self._code.depth

    @property
    def _columns_of_a_row(self) -> int:
        return product(a.extent for a in self._nest.cols).constant or 0

    def _extent(self, extent: Index) -> Any:
        return Extents(self._sizes)(extent)

    # One row ---------------------------------------------------------------------------------------------------------

    def _row(self) -> None:
        """All that is computed for one row, or for one vector of rows: level by level, then what is left to store."""
        self._emit.keep(kept(self._nest, self._lanes), place_in_row(self._nest), self._columns_of_a_row)
        for level in range(1, self._top + 1):
            reductions = [r for r in self._nest.reductions if r.level == level]
            stores = [s for s in self._nest.stores if s.over_columns and s.level == level - 1]
            self._pass(reductions, stores)
        of_rows = [s for s in self._nest.stores if not s.over_columns]
        if not self._into:
            self._store(of_rows)
        self._emit.next_walk()
        last = [s for s in self._nest.stores if s.over_columns and s.level == self._top]
        if last:
            self._columns(list(self._nest.cols), lambda: self._store(last))
        if self._into:  # the last walk may read what these replace
            self._store(of_rows)

    def _pass(self, reductions: Sequence[Reduction], stores: Sequence[Any]) -> None:
        """One walk over the columns for the reductions of a level, and the results that are ready by then."""
        is_long = self._is_long()
        sums = [_Sum(self._code, self._emit, r, self._lanes_in_columns(), is_long) for r in reductions]
        blocked = _Blocks(self._code, sums)

        def body() -> None:
            self._store(stores)
            for total in sums:
                total.add()

        self._emit.next_walk()
        self._columns(list(self._nest.cols), body, blocked)
        for total in sums:
            self._emit.reduced[total.reduction.value] = total.result()

    def _is_long(self) -> bool:
        """Whether a lane takes in more terms than one sum should have."""
        terms = product(a.extent for a in self._nest.cols).constant
        return terms is None or terms > BLOCK * self._lanes_in_columns()

    def _lanes_in_columns(self) -> int:
        return self._lanes.count if self._lanes.axis in self._nest.cols else 1

    def _columns(self, axes: list[Axis], body: Callable[[], Any], blocked: _Blocks | None = None) -> None:
        if not axes:
            body()
            return
        with_lanes = axes[0] is self._lanes.axis and self._lanes.count > 1
        if len(axes) > 1 or blocked is None:
            for _ in self._over(axes[0], with_lanes):
                self._columns(axes[1:], body, blocked)
            return
        count = self._lanes.count if with_lanes else 1
        self._blocks(axes[0], count, body, blocked)

    def _blocks(self, axis: Axis, count: int, body: Callable[[], Any], blocked: _Blocks) -> None:
        """The innermost loop of a reduction, in blocks with partial sums of their own."""
        trips = axis.extent // count
        before = self._emit.width
        if trips.constant is None or trips.constant > BLOCK:
            loop = self._code.loop
            with loop(self._extent(trips // BLOCK)) as outer, blocked.partial(), loop(int64(BLOCK)) as inner:
                self._step(axis, (outer * int64(BLOCK) + inner) * int64(count), count, body)
            self._emit.width = before
            rest = trips % BLOCK
            start = trips - rest
        else:
            rest, start = trips, Index({})
        if rest != 0:
            with blocked.partial(), self._code.loop(self._extent(rest)) as inner:
                self._step(axis, (self._extent(start) + inner) * int64(count), count, body)
            self._emit.width = before
        left = axis.extent % count
        if left != 0:
            with self._code.loop(self._extent(left)) as inner:
                self._set(axis, self._extent(axis.extent - left) + inner)
                body()

    def _step(self, axis: Axis, start: Any, count: int, body: Callable[[], Any]) -> None:
        self._set(axis, start)
        if count > 1:
            self._emit.width = count
        body()

    def _store(self, stores: Sequence[Store]) -> None:
        """Write results. Where one replaces what others are computed from, all are computed before."""
        for store in stores if self._into else ():
            body = self._emit.bind(self._emit.scalar(store.body), self._code.depth)
            self._code.remember(id(store.body), body)
        for store in stores:
            where = self._emit.index(store.offset)
            what = self._emit.scalar(store.body)
            self._code.add(tirx.BufferStore(self._flat[store.value], self._emit.wide(what, lanes_of(where)), [where]))


class _Sum:
    """The accumulators of one reduction: one in lanes where the columns run in lanes, one for single elements.

    A long sum of float32 is kept in float64, into which partial sums in float32 go.
    """

    def __init__(self, code: Code, emit: Emitter, reduction: Reduction, lanes: int, is_long: bool) -> None:
        self.reduction = reduction
        self._code, self._emit, self._lanes = code, emit, lanes
        self._dtype = reduction.value.dtype
        self.has_parts = is_long and reduction.combine == "sum" and "float" in self._dtype
        self._kept = "float64" if self.has_parts and self._dtype == "float32" else self._dtype
        self._rows = emit.width
        self.single = [code.local(self._kept, self._rows)]
        self.wide = [code.local(self._kept, lanes)] if lanes > 1 else []
        self.clear()

    def clear(self) -> None:
        neutral = neutral_of(self.reduction.combine, self.reduction.value.dtype)
        dtype = self._kept if len(self.single) == 1 else self._dtype
        for buffer, lanes in self._each():
            self._put(buffer, lanes, self._emit.wide(cast(neutral, dtype), lanes))

    def _each(self) -> list[tuple[Any, int]]:
        return [(self.single[-1], self._rows), *((w, self._lanes) for w in self.wide[-1:])]

    def _put(self, buffer: Any, lanes: int, expr: Any) -> None:
        self._code.add(tirx.BufferStore(buffer, expr, [span(int64(0), lanes)]))

    def _get(self, buffer: Any, lanes: int) -> Any:
        return tirx.BufferLoad(buffer, [span(int64(0), lanes)])

    def add(self) -> None:
        """Take in the body at the element that the loops are at."""
        body = self._emit.scalar(self.reduction.body)
        in_lanes = self._lanes > 1 and self._emit.width > 1
        buffer, lanes = (self.wide[-1], self._lanes) if in_lanes else (self.single[-1], self._rows)
        term = cast(self._emit.wide(body, lanes), self._kept if len(self.single) == 1 else self._dtype)
        self._put(buffer, lanes, self._combined(self._get(buffer, lanes), term))

    def open(self) -> None:
        """Start partial accumulators."""
        self.single.append(self._code.local(self.reduction.value.dtype, self._rows))
        if self.wide:
            self.wide.append(self._code.local(self.reduction.value.dtype, self._lanes))
        self.clear()

    def close(self) -> None:
        """Add the partial accumulators to the whole."""
        for (buffer, lanes), kind in zip(self._each(), (self.single, self.wide), strict=False):
            outer = kind[-2]
            part = cast(self._get(buffer, lanes), self._kept)
            self._put(outer, lanes, self._combined(self._get(outer, lanes), part))
        self.single.pop()
        if self.wide:
            self.wide.pop()

    def result(self) -> Any:
        """The reduction's value, the lanes combined pairwise."""
        total = self._get(self.single[0], self._rows)
        half = self._lanes
        if self.wide:
            while half > 1:
                half //= 2
                low = tirx.BufferLoad(self.wide[0], [span(int64(0), half)])
                high = tirx.BufferLoad(self.wide[0], [span(int64(half), half)])
                self._code.add(tirx.BufferStore(self.wide[0], self._combined(low, high), [span(int64(0), half)]))
            total = self._combined(total, tirx.BufferLoad(self.wide[0], [int64(0)]))
        return self._emit.bind(cast(total, self._dtype), self._code.depth)

    def _combined(self, a: Any, b: Any) -> Any:
        return combined(self.reduction.combine, self._bound(a), self._bound(b))

    def _bound(self, expr: Any) -> Any:
        return self._emit.bind(expr, self._code.depth)


class _Blocks:
    """Opens and closes the partial accumulators of several reductions."""

    def __init__(self, code: Code, sums: Sequence[_Sum]) -> None:
        self._code = code
        self._sums = [s for s in sums if s.has_parts]

    @contextmanager
    def partial(self):
        for total in self._sums:
            total.open()
        yield
        for total in self._sums:
            total.close()
