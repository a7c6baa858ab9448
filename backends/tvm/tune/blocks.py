"""A kernel as MetaSchedule wants it: not loops, but blocks, each one store over axes of which nobody said the order.

The blocks compute what the kernel's own loops do, element for element: functions stay calls by their name here, and
`finish.py` writes them as they are in our loops, once the order is found. A long sum is cut into partial sums of a
fixed length, which are added up in float64, so that it is as exact as ours.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.backends.tvm.compat import Block, BlockRealize, ir, tirx, with_regions
from bridge.backends.tvm.index import Axis, Index, points, product
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import Constant, Guarded, Load, Operation, Scalar, symbols_in, walk
from bridge.backends.tvm.schedule.axes import laid_out
from bridge.backends.tvm.schedule.combine import combined, neutral_of
from bridge.backends.tvm.schedule.cpu import BLOCK
from bridge.backends.tvm.schedule.emit import Code, Emitter, int64
from bridge.backends.tvm.schedule.functions import FUNCTIONS, one_at_a_time
from bridge.backends.tvm.schedule.integers import cast
from bridge.backends.tvm.schedule.keep import kept
from bridge.backends.tvm.schedule.nest import Nest, Reduction, Store, nest_of
from bridge.backends.tvm.schedule.parameters import inputs_of
from bridge.backends.tvm.schedule.vector import Lanes, width

LONG = 16 * BLOCK
"""Terms from which on a sum is made of partial sums."""

PART = 2 * BLOCK
"""Terms of a partial sum at most."""

LARGEST = 400
"""Operations of one expression at most: shared ones are written out wherever they are used."""

SIXTEEN_BITS = ("bfloat16", "float16")

FIRST = {"max": tirx.min_value, "min": tirx.max_value}
"""What an extreme of floats begins with, to MetaSchedule; it becomes an infinity afterwards."""


class NotTunable(Exception):
    """What a kernel does cannot be said in blocks, or would not stay what it is."""


@dataclass(frozen=True)
class Blocks:
    """function: of the kernel's inputs and results, each as one line of memory. stores: how many there are to make."""

    function: Any
    stores: int


def blocks_of(kernel: Kernel) -> Blocks:
    """A kernel that runs alone as blocks. Raises NotTunable."""
    nest = laid_out(nest_of(kernel))
    for scalar in nest.scalars:
        _check(scalar)
    _check_extremes(nest)
    return _Writer(nest, kernel.stored).write()


def check_runs_alone(kernel: Kernel) -> None:
    """Raises NotTunable for a kernel of which memory of its own does not tell how quick it is."""
    if kernel.into:
        raise NotTunable("it writes over what it reads")
    nest = nest_of(kernel)
    sizes = [size for value in (*inputs_of(nest), *kernel.stored) for size in (*value.shape, *value.strides)]
    if symbols_in([*sizes, *(a.extent for a in (*nest.rows, *nest.cols))]) or nest.elements == 0:
        raise NotTunable("its sizes are symbols, or zero")


def _check(root: Scalar) -> None:
    """Raises NotTunable for what only our own loops compute as torch does."""
    for node in walk(root):
        if isinstance(node, Guarded):
            raise NotTunable("it reads under a condition")
        if isinstance(node, Load) and any(points(i) for i in node.index):
            raise NotTunable("it reads where data points")
        if isinstance(node, Operation):
            if node.dtype in SIXTEEN_BITS and node.name not in ("Cast", "Select"):
                raise NotTunable(f"it computes in {node.dtype}, rounded after each operation")
            if node.name == "Cast" and node.dtype == "bfloat16" and node.arguments[0].dtype != "float32":
                raise NotTunable(f"it makes bfloat16 of {node.arguments[0].dtype}")
            if one_at_a_time(node.name, node.dtype):
                raise NotTunable(f"{node.name} of {node.dtype} is a function of the C library")
    if _written_out(root) > LARGEST:
        raise NotTunable("its expressions are too large")


def _check_extremes(nest: Nest) -> None:
    """A maximum is sought as TVM's, and made one that keeps NaN afterwards. An element's own cannot be told from it."""
    bodies = [node for scalar in nest.scalars for node in walk(scalar) if isinstance(node, Operation)]
    if any(node.name in ("Max", "Min") and "float" in node.dtype for node in bodies):
        raise NotTunable("it compares floats as TVM does")
    bounds = [c for scalar in nest.scalars for c in walk(scalar) if isinstance(c, Constant) and _is_bound(c)]
    if bounds and any(r.combine in FIRST for r in nest.reductions):
        raise NotTunable("it has the largest number there is")
    for reduction in nest.reductions:
        if reduction.value.dtype in SIXTEEN_BITS:
            raise NotTunable(f"it reduces in {reduction.value.dtype}")


def _is_bound(constant: Constant) -> bool:
    return isinstance(constant.value, float) and abs(constant.value) > 1e30 and math.isfinite(constant.value)


def _written_out(root: Scalar) -> int:
    """The operations of an expression in which nothing is shared."""
    sizes: dict[int, int] = {}
    for node in walk(root):
        sizes[id(node)] = 1 + sum(sizes[id(o)] for o in node.operands)
    return sizes[id(root)]


class _Plain(Emitter):
    """Writes scalars as expressions without names, functions as calls."""

    def bind(self, expr: Any, depth: int) -> Any:
        return expr

    def _written(self, node: Scalar, axes: frozenset[Axis], depth: int) -> Any:
        if isinstance(node, Operation) and node.dtype == "float32" and node.name in FUNCTIONS:
            return ir.Call(ir.Op.get(node.name), [self.scalar(a) for a in node.arguments], ret_ty="float32")
        if isinstance(node, Operation) and node.name == "Cast" and node.dtype == "bfloat16":
            return cast(self.scalar(node.arguments[0]), node.dtype)  # `finish.py` rounds
        return super()._written(node, axes, depth)


class _Writer:
    """Collects the blocks of one nest, in an order in which they can run."""

    def __init__(self, nest: Nest, stored: Sequence[Value]) -> None:
        self._nest = nest
        self._inputs, self._outputs = inputs_of(nest), list(stored)
        self._flat = {value: _line(value, f"f{n}") for n, value in enumerate([*self._inputs, *self._outputs])}
        self._made: dict[Value, tuple[Any, str]] = {}
        self._kept: dict[int, Any] = {}
        self._buffers: list[Any] = []
        self._blocks: list[Any] = []
        self._stores = 0

    def write(self) -> Blocks:
        pending = kept(self._nest, Lanes(self._nest.cols[-1], 1)) if self._nest.cols else []
        self._keep = {id(scalar): scalar for scalar in pending}
        for reduction in self._nest.reductions:
            self._keep_for(reduction.body)
            self._reduction(reduction)
        for store in self._nest.stores:
            if store.over_columns:
                self._keep_for(store.body)
            self._store(store)
        root = Block([], [], [], "root", _sequence(self._blocks), alloc_buffers=self._buffers)
        function = tirx.PrimFunc(list(self._flat.values()), BlockRealize([], True, root))
        function = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True).with_attr("s_tir", True)
        return Blocks(function, self._stores)

    def _keep_for(self, body: Scalar) -> None:
        """A block for what several walks need dearly, before the first that does."""
        axes = (*self._nest.rows, *self._nest.cols)
        for node in walk(body):
            if id(node) in self._keep and id(node) not in self._kept:
                buffer = self._buffer("kept", axes, node.dtype)
                self._block("keep", axes, (), lambda emit, at, n=node, b=buffer: (emit.scalar(n), b, at))
                self._kept[id(node)] = buffer

    def _reduction(self, reduction: Reduction) -> None:
        rows, cols, dtype = self._nest.rows, self._nest.cols, reduction.value.dtype
        terms = product(a.extent for a in cols).constant or 0
        if reduction.combine != "sum" or dtype != "float32" or terms <= LONG:
            buffer = self._buffer("total", rows, dtype)
            self._reduce(reduction.combine, rows, cols, {}, buffer, lambda emit: emit.scalar(reduction.body))
            self._made[reduction.value] = buffer, dtype
            return
        outer, inner, into = _cut(cols)
        parts = self._buffer("parts", (*rows, *outer), dtype)
        self._reduce("sum", (*rows, *outer), (inner,), into, parts, lambda emit: emit.scalar(reduction.body))
        total = self._buffer("total", rows, "float64")

        def part(emit: _Plain) -> Any:
            at = [emit.axes[a] for a in (*rows, *outer)]
            return cast(tirx.BufferLoad(parts, at), "float64")

        self._reduce("sum", rows, outer, {}, total, part)
        self._made[reduction.value] = total, dtype

    def _store(self, store: Store) -> None:
        axes = (*self._nest.rows, *self._nest.cols) if store.over_columns else self._nest.rows

        def stored(emit: _Plain, at: list[Any]) -> tuple[Any, Any, list[Any]]:
            return emit.scalar(store.body), self._flat[store.value], [emit.index(store.offset)]

        self._block("store", axes, (), stored)

    def _reduce(
        self,
        combine: str,
        rows: Sequence[Axis],
        cols: Sequence[Axis],
        into: dict[Axis, Index],
        buffer: Any,
        term: Callable[[_Plain], Any],
    ) -> None:
        """A block that combines terms over columns. into: what the nest's own axes are of these."""
        kind = {"max": tirx.Max, "min": tirx.Min}.get(combine) if "float" in str(buffer.dtype) else None

        def update(emit: _Plain, at: list[Any]) -> tuple[Any, Any, list[Any]]:
            so_far = tirx.BufferLoad(buffer, at)
            value = kind(so_far, term(emit)) if kind else combined(combine, so_far, term(emit))
            return value, buffer, at

        dtype = str(buffer.dtype)
        neutral = FIRST[combine](dtype) if kind else neutral_of(combine, dtype)
        self._block("reduce", rows, cols, update, neutral, into)

    def _block(
        self,
        name: str,
        rows: Sequence[Axis],
        cols: Sequence[Axis],
        store: Callable[[_Plain, list[Any]], tuple[Any, Any, list[Any]]],
        neutral: Any = None,
        into: dict[Axis, Index] | None = None,
    ) -> None:
        """One block over rows and columns, in loops of their own."""
        axes = [*rows, *cols]
        loops = [tirx.Var(f"i{n}", "int64") for n in range(len(axes))]
        inside = [tirx.Var(f"v{n}", "int64") for n in range(len(axes))]
        emit = self._emitter(dict(zip(axes, inside, strict=True)), into or {})
        at: list[Any] = [emit.axes[a] for a in rows] or [int64(0)]
        value, buffer, where = store(emit, at)
        kinds = [0] * len(rows) + [2] * len(cols)
        iters = [
            tirx.IterVar(ir.Range(int64(0), int64(_number(a.extent))), v, kind)
            for a, v, kind in zip(axes, inside, kinds, strict=True)
        ]
        name = f"{name}{len(self._blocks)}"
        init = None if neutral is None else tirx.BufferStore(buffer, neutral, where)
        block = with_regions(Block(iters, [], [], name, tirx.BufferStore(buffer, value, where), init), self._held())
        statement = BlockRealize(loops, True, block)
        self._stores += (1 + (neutral is not None)) * (product(a.extent for a in axes).constant or 1)
        for axis, loop in reversed(list(zip(axes, loops, strict=True))):
            extent = int64(_number(axis.extent))
            statement = tirx.For(loop, int64(0), extent, tirx.ForKind.SERIAL, statement)
        self._blocks.append(statement)

    def _emitter(self, axes: dict[Axis, Any], into: dict[Axis, Index]) -> _Plain:
        nest = self._nest
        emit = _Plain(Code(), self._flat, {}, nest.rows, Lanes(None, 1))
        emit.axes.update(axes)
        emit.axes.update({axis: emit.index(index) for axis, index in into.items()})
        here = [emit.axes[a] for a in nest.rows] or [int64(0)]
        for value, (buffer, dtype) in self._made.items():
            emit.reduced[value] = cast(tirx.BufferLoad(buffer, here), dtype)
        for key, buffer in self._kept.items():
            if all(a in emit.axes for a in nest.cols):
                at = [emit.axes[a] for a in (*nest.rows, *nest.cols)]
                emit.code.remember(key, tirx.BufferLoad(buffer, at))
        return emit

    def _held(self) -> list[Any]:
        return [*self._flat.values(), *self._buffers]

    def _buffer(self, name: str, axes: Sequence[Axis], dtype: str) -> Any:
        """Memory between two blocks, with a dim for each axis."""
        shape = [int64(_number(a.extent)) for a in axes] or [int64(1)]
        buffer = tirx.decl_buffer(shape, dtype, f"{name}{len(self._buffers)}")
        self._buffers.append(buffer)
        return buffer


def _line(value: Value, name: str) -> Any:
    """A value as one line of memory, which begins anywhere."""
    return tirx.decl_buffer((int64(_number(value.reach)),), value.dtype, name, data_alignment=width(value.dtype))


def _cut(cols: Sequence[Axis]) -> tuple[list[Axis], Axis, dict[Axis, Index]]:
    """Columns with the last of them cut into parts: the axes outside, the axis of a part, and the last by these."""
    last = cols[-1]
    extent = _number(last.extent)
    length = next(n for n in range(min(PART, extent), 0, -1) if extent % n == 0)
    outer, inner = Axis(f"{last.name}o", Index.of(extent // length)), Axis(f"{last.name}i", Index.of(length))
    return [*cols[:-1], outer], inner, {last: Index.of(outer) * length + Index.of(inner)}


def _number(index: Index) -> int:
    assert index.constant is not None
    return index.constant


def _sequence(statements: Sequence[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
