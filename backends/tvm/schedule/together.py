"""Schedule a bundle for a CPU: its lines, end to end, are one long walk, which is cut into shares of equal length.

The kernel is called with addresses: to hand over a tensor as such takes longer than to compute a short line, and TVM
takes seconds over a function of hundreds of tensors. A table says of each line where in the walk it begins, how long
it is, and where its memory is.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from tvm import tirx
from tvm.ir import PointerType, PrimType

from bridge.backends.tvm.bundle import Bundle
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.schedule.cpu import PARALLEL_FROM
from bridge.backends.tvm.schedule.emit import Code, Emitter, int64
from bridge.backends.tvm.schedule.integers import lanes_of
from bridge.backends.tvm.schedule.line import Line
from bridge.backends.tvm.schedule.parameters import Scheduled
from bridge.backends.tvm.schedule.vector import vectorised, width

SHARE = 1 << 12
"""Elements of a share at least."""

SHARES = 64
"""Shares at most."""

STEP = 64
"""Lines begin, in the walk, at multiples of this, so that lanes are full but at the end of a line."""


def scheduled(bundle: Bundle, name: str) -> Scheduled:
    """The bundle as one PrimFunc, called with the addresses of all that its lines read and write."""
    return _Writer(bundle, name).write()


class _Writer:
    def __init__(self, bundle: Bundle, name: str) -> None:
        self._bundle, self._name = bundle, name
        self._longest = bundle.longest
        self._nest, self._lanes = vectorised(self._longest.nest)
        self._code = Code()
        self._outputs = bundle.stored
        results = set(self._outputs)
        self._inputs = [value for value in bundle.memory if value not in results]
        values = [*self._inputs, *self._outputs]
        self._addresses = {value: tirx.Var(f"p{n}", "int64") for n, value in enumerate(values)}
        self._starts = [0, *accumulate(-(-line.length // STEP) * STEP for line in bundle.lines)]
        places = range(len(self._longest.memory))
        self._several = [n for n in places if len({line.memory[n] for line in bundle.lines}) > 1]

    def write(self) -> Scheduled:
        count, share = self._shares()
        lines = self._table([self._row(line, start) for line, start in zip(self._bundle.lines, self._starts)])
        parts = self._table([self._lines_of(n * share, share) for n in range(count)])
        with self._code.loop(int64(count), parallel=count > 1) as part:
            first, behind = parts(part, 0), parts(part, 1)
            with self._code.loop(behind - first) as n:
                self._stretch(lambda column: lines(first + n, column), part * int64(share), share)
        function = tirx.PrimFunc(list(self._addresses.values()), self._code.finish())
        function = function.with_attr("global_symbol", self._name).with_attr("s_tir", True)
        return Scheduled(function, self._inputs, self._outputs, [], by_address=True)

    # What is known before the walk -----------------------------------------------------------------------------------

    def _shares(self) -> tuple[int, int]:
        """How many shares there are, and of how many elements."""
        total = self._starts[-1]
        count = min(SHARES, total // SHARE) if total >= PARALLEL_FROM else 1
        share = -(-total // (count * STEP)) * STEP
        return -(-total // share), share

    def _lines_of(self, begin: int, share: int) -> list[Any]:
        """The first line of a share, and the one behind its last."""
        starts = self._starts[:-1]
        return [int64(bisect_right(starts, begin) - 1), int64(bisect_left(starts, begin + share))]

    def _row(self, line: Line, start: int) -> list[Any]:
        """What the table says of a line."""
        return [int64(start), int64(line.length), *(self._addresses[line.memory[n]] for n in self._several)]

    def _table(self, rows: Sequence[Sequence[Any]]) -> Callable[[Any, int], Any]:
        """Rows of integers on the stack, as a function of a row and a column."""
        columns = len(rows[0])
        buffer = self._code.local("int64", len(rows) * columns)
        for n, entry in enumerate(entry for row in rows for entry in row):
            self._code.add(tirx.BufferStore(buffer, entry, [int64(n)]))
        return lambda row, column: tirx.BufferLoad(buffer, [row * int64(columns) + int64(column)])

    # The walk --------------------------------------------------------------------------------------------------------

    def _stretch(self, entry: Callable[[int], Any], begin: Any, share: int) -> None:
        """The part of a line that lies in a share."""
        memory = self._memory(entry)
        emit = Emitter(self._code, memory, {}, self._nest.rows, self._lanes)
        emit.count(self._nest.scalars)
        emit.outermost = self._code.depth
        start, length = entry(0), entry(1)
        low = emit.bind(tirx.Max(begin - start, int64(0)), self._code.depth)
        high = emit.bind(tirx.Min(begin + int64(share) - start, length), self._code.depth)
        for first, count, extent in self._loops(low, high):
            with self._code.loop(extent) as n:
                for axis in self._nest.rows:
                    emit.axes[axis], emit.depths[axis] = first + n * int64(count), self._code.depth
                emit.width = count
                self._store(emit, memory)
            emit.width = 1

    def _loops(self, low: Any, high: Any) -> list[tuple[Any, int, Any]]:
        """From where, in how many lanes and how many times: as far as lanes go, then one by one."""
        if self._lanes.count == 1:
            return [(low, 1, high - low)]
        lanes = int64(self._lanes.count)
        rest = tirx.FloorMod(high - low, lanes)
        return [(low, self._lanes.count, tirx.FloorDiv(high - low, lanes)), (high - rest, 1, rest)]

    def _memory(self, entry: Callable[[int], Any]) -> dict[Value, Any]:
        """By value of the longest line, the memory of the line that is being walked along."""
        found: dict[Value, Any] = {}
        for n, value in enumerate(self._longest.memory):
            address = entry(2 + self._several.index(n)) if n in self._several else self._addresses[value]
            data = tirx.Var(self._code.name("m"), PointerType(PrimType(value.dtype)))
            self._code.add(tirx.Bind(data, tirx.reinterpret(data.ty, address)))
            extent = int64(self._longest.length if self._longest.walked[n] else 1)
            name, alignment = self._code.name("f"), width(value.dtype)
            found[value] = tirx.decl_buffer((extent,), value.dtype, name, data=data, data_alignment=alignment)
            self._code.add(tirx.DeclBuffer(found[value], data=data))
        found.update((target, found[value]) for value, target in self._longest.kernel.into.items())
        return found

    def _store(self, emit: Emitter, memory: Mapping[Value, Any]) -> None:
        """Write results. All are computed before, since one may replace what others are computed from."""
        for store in self._nest.stores:
            self._code.remember(id(store.body), emit.bind(emit.scalar(store.body), self._code.depth))
        for store in self._nest.stores:
            where = emit.index(store.offset)
            what = emit.wide(emit.scalar(store.body), lanes_of(where))
            self._code.add(tirx.BufferStore(memory[store.value], what, [where]))
