"""Reductions that several threads share: each takes in its own part, then the parts are put together in a fixed order.

Within a warp parts are exchanged between registers, among the warps of a block by way of memory that they share.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx

from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.schedule.combine import combined, neutral_of
from bridge.backends.tvm.schedule.grid import WARP, Grid
from bridge.backends.tvm.schedule.integers import cast
from bridge.backends.tvm.schedule.nest import Reduction
from bridge.backends.tvm.schedule.threads import ThreadCode, ThreadEmitter, converted

TAKEN_IN: Mapping[str, str] = {
    "bfloat16": "float32", "float16": "float32", "bool": "int32", "int8": "int32", "int16": "int32", "uint8": "int32",
}  # fmt: skip
"""The types in which reductions are kept, where that is not their own."""

OF_TWO = {"max": "bridge_larger", "min": "bridge_smaller"}
"""Functions that the source of kernels begins with, for which a NaN is the largest and the smallest number."""

OF_TRUTH = {"any": "max", "all": "min"}


class Share:
    """A thread's share of rows and columns, and the totals that it has a part in.

    lane: its place among the threads that share a row. row: its row among those of the block.
    """

    def __init__(self, code: ThreadCode, emit: ThreadEmitter, grid: Grid, thread: Any) -> None:
        self.code, self.emit, self.grid, self.thread = code, emit, grid, thread
        across, beside = emit.number(grid.across), emit.number(grid.beside)
        self.lane, self.row = emit.number(0), emit.number(0)
        if grid.across == 1:
            self.row = thread
        elif grid.beside == 1:
            self.lane = thread
        elif grid.in_rows:
            self.lane, self.row = tirx.Div(thread, beside), tirx.Mod(thread, beside)
        else:
            self.lane, self.row = tirx.Mod(thread, across), tirx.Div(thread, across)
        self.done: dict[Value, Total] = {}
        self._rooms: dict[str, Any] = {}

    def room(self, dtype: str, size: int) -> Any:
        """Memory of the block for the parts of one reduction after the other."""
        if dtype in self._rooms:
            self.code.barrier()
        else:
            self._rooms[dtype] = self.code.shared(dtype, size)
        return self._rooms[dtype]

    @property
    def rows(self) -> int:
        """Elements of a reduction that a thread has: one for each row of its patch."""
        return self.grid.width if self.grid.in_rows else 1

    def is_first(self) -> Any | None:
        """The condition for one thread of those that share a row; None where a row has one only."""
        return None if self.grid.across == 1 else tirx.EQ(self.lane, self.emit.number(0))

    def goes_on(self, reduction: Reduction) -> bool:
        """Whether threads other than the first of a row use the result."""
        nest = self.grid.nest
        later = any(other.level > reduction.level for other in nest.reductions)
        return later or any(store.over_columns and store.level >= reduction.level for store in nest.stores)

    def at(self, element: Any) -> None:
        """Say at which element of a patch the thread is."""
        place = element if self.grid.in_rows else self.emit.number(0)
        for value, total in self.done.items():
            self.emit.reduced[value] = total.result(place)


class Total:
    """One reduction: a thread's part of it, and after `close` the whole."""

    def __init__(self, share: Share, reduction: Reduction) -> None:
        self._share, self._reduction = share, reduction
        self._code, self._emit = share.code, share.emit
        dtype = reduction.value.dtype
        self._dtype = TAKEN_IN.get(dtype, dtype)
        self._how = OF_TRUTH.get(reduction.combine, reduction.combine)
        self._parts = self._code.local(self._dtype, share.rows)
        for row in range(share.rows):
            self._put(row, cast(neutral_of(reduction.combine, self._dtype), self._dtype))

    def add(self) -> None:
        """Take in the body at the element that the loops are at."""
        share = self._share
        place = self._emit.axes[share.grid.patch] if share.grid.in_rows and share.grid.patch else 0
        self._take(place, cast(self._emit.scalar(self._reduction.body), self._dtype))

    def close(self) -> None:
        """Put the parts of all threads together. All of them have the result then."""
        grid = self._share.grid
        if grid.across > 1:
            if grid.in_rows:
                self._by_memory()
            else:
                self._by_warps()
        self._share.done[self._reduction.value] = self
        self._share.at(self._emit.number(0))

    def result(self, place: Any) -> Any:
        expr, dtype = self._get(place), self._reduction.value.dtype
        if dtype == "bool":
            return tirx.NE(expr, tirx.IntImm(self._dtype, 0))
        return converted(expr, self._dtype, dtype)

    def _by_warps(self) -> None:
        share, across = self._share, self._share.grid.across
        step = min(across, WARP) // 2
        while step:
            self._take(0, _exchanged(self._get(0), step))
            step //= 2
        if across <= WARP:
            return
        warps = across // WARP
        shared = self._code.shared(self._dtype, share.grid.threads // WARP)
        warp = tirx.Div(share.thread, self._emit.number(WARP))
        with self._code.where(tirx.EQ(tirx.Mod(share.thread, self._emit.number(WARP)), self._emit.number(0))):
            self._code.add(tirx.BufferStore(shared, self._get(0), [warp]))
        self._code.barrier()
        self._gather(shared, share.row * self._emit.number(warps), warps, 1, 0)

    def _by_memory(self) -> None:
        """Halve the threads that have a part until one has all; the others get it from there if they go on."""
        share, grid = self._share, self._share.grid
        number, stride = self._emit.number, grid.beside * share.rows
        shared = share.room(self._dtype, grid.across * stride)

        def place(lane: Any, row: int) -> Any:
            return lane * number(stride) + share.row * number(share.rows) + number(row)

        def put() -> None:
            for row in range(share.rows):
                self._code.add(tirx.BufferStore(shared, self._get(row), [place(share.lane, row)]))

        half = grid.across // 2
        while half:
            with self._code.where(tirx.And(share.lane >= number(half), share.lane < number(2 * half))):
                put()
            self._code.barrier()
            with self._code.where(share.lane < number(half)):
                for row in range(share.rows):
                    self._take(row, tirx.BufferLoad(shared, [place(share.lane + number(half), row)]))
            half //= 2
        if share.goes_on(self._reduction):
            with self._code.where(share.is_first()):
                put()
            self._code.barrier()
            for row in range(share.rows):
                self._put(row, tirx.BufferLoad(shared, [place(number(0), row)]))

    def _gather(self, shared: Any, first: Any, count: int, stride: int, row: int) -> None:
        """Combine parts that lie `stride` apart."""
        self._put(row, tirx.BufferLoad(shared, [first]))
        with self._code.loop(self._emit.number(count - 1), unrolled=True) as other:
            place = first + (other + self._emit.number(1)) * self._emit.number(stride)
            self._take(row, tirx.BufferLoad(shared, [place]))

    def _take(self, place: Any, expr: Any) -> None:
        part = self._emit.bind(expr, self._code.depth)
        if self._dtype == "float32" and self._how in OF_TWO:
            self._put(place, tirx.call_pure_extern("float32", OF_TWO[self._how], self._get(place), part))
        else:
            self._put(place, combined(self._how, self._get(place), part))

    def _get(self, place: Any) -> Any:
        return tirx.BufferLoad(self._parts, [place])

    def _put(self, place: Any, expr: Any) -> None:
        self._code.add(tirx.BufferStore(self._parts, expr, [place]))


def _exchanged(expr: Any, step: int) -> Any:
    """What the thread `step` away in the same warp, up or down, has there."""
    mask, warp = tirx.IntImm("uint32", 0xFFFFFFFF), tirx.IntImm("int32", WARP)
    arguments = [mask, expr, tirx.IntImm("int32", step), warp, warp]
    return ir.Call(ir.Op.get("tirx.tvm_warp_shuffle_xor"), arguments, ret_ty=expr.ty)
