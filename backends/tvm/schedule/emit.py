"""Write a nest as a TVM PrimFunc: parallel loops over rows, vector lanes, one expression for each shared value."""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from bridge.backends.tvm.index import Axis, Data, Index, Quotient, Remainder, Size, points
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import (
    Constant,
    Guarded,
    Load,
    Position,
    Reduced,
    Scalar,
    inside,
    walk,
)
from bridge.backends.tvm.schedule.elements import constant, operation
from bridge.backends.tvm.schedule.functions import rounded
from bridge.backends.tvm.schedule.integers import (
    cast,
    floor_division,
    floor_remainder,
    lanes_of,
)
from bridge.backends.tvm.schedule.keep import Kept
from bridge.backends.tvm.schedule.vector import Lanes


def int64(value: int) -> Any:
    """A size or a position."""
    return tirx.IntImm("int64", value)


EXACT = ("Select", "Max", "Min", "tirx.fabs")
"""Operations on floats whose results need no rounding."""

ON_THE_STACK = {"disable_lower_builtin": tirx.IntImm("bool", 1)}
"""Without it TVM asks its runtime for the memory of a buffer, and gives it back, each time a loop gets there."""


class Code:
    """Statements under construction, in nested scopes. What is bound in a scope is known in the scopes inside it."""

    def __init__(self) -> None:
        self._statements: list[list[Any]] = [[]]
        self._known: list[dict[int, Any]] = [{}]
        self._names = 0
        self.kept: list[Any] = []

    @property
    def depth(self) -> int:
        return len(self._statements)

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def add(self, statement: Any, depth: int | None = None) -> None:
        self._statements[(depth or self.depth) - 1].append(statement)

    def recall(self, key: int) -> Any | None:
        for known in reversed(self._known):
            if key in known:
                return known[key]
        return None

    def depth_of(self, key: int) -> int:
        """The scope in which an expression was bound."""
        return next((n + 1 for n, known in enumerate(self._known) if key in known), 1)

    def remember(self, key: int, expr: Any, depth: int | None = None) -> None:
        self._known[(depth or self.depth) - 1][key] = expr

    def forget(self) -> None:
        """Drop what the innermost scope knows, as when its loop is written again with other lanes."""
        self._known[-1] = {}

    @contextmanager
    def scope(self, close: Callable[[Any], Any]) -> Iterator[None]:
        """Collect statements; `close` turns them into the one statement that is added outside."""
        self._statements.append([])
        self._known.append({})
        yield
        inner = self._statements.pop()
        self._known.pop()
        if inner:
            self.add(close(block(inner)))

    @contextmanager
    def loop(self, extent: Any, parallel: bool = False, unrolled: bool = False, stem: str = "i") -> Iterator[Any]:
        variable = tirx.Var(self.name(stem), extent.ty.dtype)
        kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.UNROLLED if unrolled else tirx.ForKind.SERIAL
        with self.scope(lambda body: tirx.For(variable, tirx.IntImm(extent.ty.dtype, 0), extent, kind, body)):
            yield variable

    def local(self, dtype: str, lanes: int, depth: int | None = None) -> Any:
        """A small buffer that lives in registers."""
        buffer = tirx.decl_buffer((int64(lanes),), dtype, self.name("a"), scope="local")
        self.add(tirx.AllocBuffer(buffer, ON_THE_STACK), depth)
        return buffer

    @property
    def statements(self) -> list[Any]:
        """Those of the outermost scope so far."""
        return list(self._statements[0])

    def finish(self) -> Any:
        return block(self._statements[0])


def block(statements: Sequence[Any]) -> Any:
    """Several statements as one."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


class Emitter:
    """Writes scalars over given axes. `flat` are the buffers by value, `sizes` the symbolic sizes by name."""

    integer = "int64"
    """The type of positions."""

    def __init__(
        self, code: Code, flat: Mapping[Value, Any], sizes: Mapping[str, Any], rows: Sequence[Axis], lanes: Lanes
    ) -> None:
        self.code = code
        self._flat = flat
        self._sizes = sizes
        self._rows = tuple(rows)
        self._lanes = lanes
        self.width = 1
        self.axes: dict[Axis, Any] = {}
        self.depths: dict[Axis, int] = {}
        self.reduced: dict[Value, Any] = {}
        self._used: dict[int, frozenset[Axis]] = {}
        self._reads: dict[int, int] = {}
        self._kept: dict[int, Kept] = {}
        self._walk = 0
        self.outermost = 1  # nothing is bound further out than this, as while the branch of a guard is written

    # Which axes a scalar depends on ----------------------------------------------------------------------------------

    def used(self, root: Scalar) -> frozenset[Axis]:
        """The axes that change the scalar's value."""
        for node in walk(root):
            if id(node) not in self._used:
                self.code.kept.append(node)
                found = frozenset(self._rows) if isinstance(node, Reduced) else frozenset()
                for operand in node.operands:
                    found |= self._used[id(operand)]
                indices = node.index if isinstance(node, Load) else (node.index,) if isinstance(node, Position) else ()
                for index in indices:
                    found |= self._index_axes(index)
                self._used[id(node)] = found
        return self._used[id(root)]

    def _index_axes(self, index: Index) -> frozenset[Axis]:
        found: frozenset[Axis] = frozenset()
        for atom in index.atoms():
            if isinstance(atom, Axis):
                found |= {atom}
            elif isinstance(atom, Data):
                found |= self.used(atom.scalar)
        return found

    def varies(self, axes: frozenset[Axis]) -> bool:
        """Whether something that depends on these axes differs from lane to lane."""
        return self.width > 1 and self._lanes.axis in axes

    def _depth(self, axes: frozenset[Axis]) -> int:
        """The outermost scope in which all the axes are known."""
        return max((self.depths[a] for a in axes if a in self.depths), default=1)

    # Scalars ---------------------------------------------------------------------------------------------------------

    def scalar(self, root: Scalar) -> Any:
        """The expression for a scalar: as wide as the lanes if it varies, else one element."""
        known = self.code.recall(id(root))
        if known is not None:
            return known
        axes = self.used(root)
        held = self._kept.get(id(root))
        if held is not None and held.walk < self._walk:
            expr = tirx.BufferLoad(held.buffer, [self.index(held.place)])
            self.code.remember(id(root), expr)
            return expr
        if isinstance(root, Guarded):
            depth = self.code.depth
        else:
            needs = [*root.operands, *inside(root)]
            depth = max(self._depth(axes), self.outermost, *(self._settled(n) for n in needs), 1)
        expr = self._written(root, axes, depth)
        if held is not None:
            expr = self._put_into(held, self.bind(expr, depth))
        if not isinstance(root, Constant | Reduced) and (depth < self.code.depth or self._shared(root)):
            expr = self.bind(expr, depth)
        elif not isinstance(root, Constant | Reduced):
            return expr
        self.code.remember(id(root), expr, depth)
        self.code.kept.append(root)
        return expr

    def keep(self, scalars: Sequence[Scalar], place: Index, count: int) -> None:
        """What the next walk over `count` columns computes of these is kept for the walks after it."""
        self._walk = 0
        self._kept = {id(s): Kept(self.code.local(self.register(s.dtype), count), place) for s in scalars}

    def register(self, dtype: str) -> str:
        """The type in which an element of a type is held while it is computed with."""
        return dtype

    def next_walk(self) -> None:
        """A walk over the columns begins."""
        self._walk += 1

    def _put_into(self, held: Kept, expr: Any) -> Any:
        held.walk = self._walk
        where = self.index(held.place)
        self.code.add(tirx.BufferStore(held.buffer, self.wide(expr, lanes_of(where)), [where]))
        return expr

    def _settled(self, node: Scalar) -> int:
        """The scope that a scalar needs at least, after what it shares with others was bound."""
        if self.code.recall(id(node)) is None and (isinstance(node, Guarded) or self._shared(node)):
            self.scalar(node)
        if self.code.recall(id(node)) is not None:
            return self.code.depth_of(id(node))
        needs = [self._settled(n) for n in (*node.operands, *inside(node))]
        return max(self._depth(self.used(node)), self.outermost, *needs, 1)

    def count(self, roots: Sequence[Scalar]) -> None:
        """Take note of how often each scalar is read: what is read once needs no name."""
        seen: set[int] = set()
        for root in roots:
            self._reads[id(root)] = self._reads.get(id(root), 0) + 1
            for node in walk(root):
                if id(node) not in seen:
                    seen.add(id(node))
                    for need in (*node.operands, *inside(node)):
                        self._reads[id(need)] = self._reads.get(id(need), 0) + 1

    def _shared(self, node: Scalar) -> bool:
        return self._reads.get(id(node), 2) > 1 or isinstance(node, Guarded)

    def wide(self, expr: Any, width: int) -> Any:
        """The expression in as many lanes."""
        lanes = lanes_of(expr)
        return expr if lanes == width else tirx.Broadcast(expr, width)

    def _written(self, node: Scalar, axes: frozenset[Axis], depth: int) -> Any:
        if isinstance(node, Constant):
            return constant(node.value, node.dtype)
        if isinstance(node, Reduced):
            return self.reduced[node.value]
        if isinstance(node, Position):
            expr = self.index(node.index)
            return cast(expr, node.dtype)
        if isinstance(node, Load):
            return tirx.BufferLoad(self._flat[node.value], [self.place(node)])
        if isinstance(node, Guarded):
            return self._guarded(node, axes)
        arguments = [self.scalar(a) for a in node.arguments]
        width = max(lanes_of(a) for a in arguments)
        expr = operation(node, [self.wide(a, width) for a in arguments], lambda e: self.bind(e, depth))
        if node.dtype == "bfloat16" and node.name not in EXACT and self._reads.get(id(node), 1) > 0:
            return rounded(expr, lambda e: self.bind(e, depth))
        return expr

    def bind(self, expr: Any, depth: int) -> Any:
        """The expression by a name, so that it is computed once, in the scope of that depth."""
        if isinstance(expr, tirx.Var | tirx.IntImm | tirx.FloatImm):
            return expr
        return self._put_away(expr, depth)

    def _put_away(self, expr: Any, depth: int) -> Any:
        """A value by way of a buffer that LLVM keeps in a register.

        TVM writes a bound integer back into every use, without end, and its analysis refuses truth values in lanes.
        """
        width = lanes_of(expr)
        at = [span(int64(0), width)]
        buffer = self.code.local(str(expr.ty.dtype).split("x")[0], width, depth)
        self.code.add(tirx.BufferStore(buffer, expr, at), depth)
        return tirx.BufferLoad(buffer, at)

    def _once(self, index: Index, dividend: Any, by: Any) -> Any:
        """What is divided, by a name: division in lanes has it several times, and so grows with each that is nested.

        So does division by a symbol, which TVM knows no sign of. index: that of the dividend. The name is known as far
        out as its axes are, since what it stands in may be bound outside of the innermost loop.
        """
        if lanes_of(dividend) == 1 and isinstance(by, tirx.IntImm):
            return dividend
        data = [self._settled(atom.scalar) for atom in index.atoms() if isinstance(atom, Data)]
        return self.bind(dividend, max(self._depth(self._index_axes(index)), self.outermost, *data, 1))

    def _guarded(self, node: Guarded, axes: frozenset[Axis]) -> Any:
        """A branch in a statement of its own, so that what must not be read is not read."""
        width = self.width if self.varies(axes) else 1
        result = self.code.local(self.register(node.dtype), width)
        at = [span(int64(0), width)]
        condition = self.scalar(node.condition)
        outer = self.outermost
        for wanted, branch in ((condition, node.then), (tirx.Not(condition), node.otherwise)):
            with self.code.scope(lambda body, wanted=wanted: tirx.IfThenElse(wanted, body, None)):
                self.outermost = self.code.depth
                self.code.add(tirx.BufferStore(result, self.wide(self.scalar(branch), width), at))
            self.outermost = outer
        return tirx.BufferLoad(result, at)

    # Indices ---------------------------------------------------------------------------------------------------------

    def place(self, load: Load) -> Any:
        """Where an element lies. One that data points at is held inside of the tensor.

        Rows do so too, but TVM takes it away where the branch that reads is taken for indices inside alone; in lanes
        both branches are computed.
        """
        value = load.value
        by_data = [d for d, index in enumerate(load.index) if points(index)]
        where = self.index(value.offset(tuple(Index({}) if d in by_data else i for d, i in enumerate(load.index))))
        for d in by_data:
            at, last = self.index(load.index[d]), self.index(value.shape[d] - 1)
            width = lanes_of(at)
            held = tirx.Max(tirx.Min(at, self.wide(last, width)), self.wide(self.number(0), width))
            moved = self._combined(tirx.Mul, held, self.index(value.strides[d]))
            if isinstance(where, tirx.Ramp) and width == 1:  # neighbours stay neighbours
                where = tirx.Ramp(where.base + moved, where.stride, self.width)
            else:
                where = self._combined(tirx.Add, where, moved)
        return where

    def index(self, index: Index) -> Any:
        """An index as an expression; as wide as the lanes where the vector axis or data that varies is in it."""
        axis = self._lanes.axis
        axes = self._index_axes(index)
        if not self.varies(axes):
            return self._polynomial(index, {})
        assert axis is not None
        factor = index.coefficient(axis)
        data = any(isinstance(a, Data) and self.varies(self.used(a.scalar)) for a in index.atoms())
        if factor is not None and factor.constant is not None and not data:
            return tirx.Ramp(self._polynomial(index, {}), int64(factor.constant), self.width)
        ramp = tirx.Ramp(self.axes[axis], int64(1), self.width)
        return self.wide(self._polynomial(index, {axis: ramp}), self.width)

    def _polynomial(self, index: Index, special: Mapping[Axis, Any]) -> Any:
        total: Any = None
        for monomial, factor in index.terms.items():
            term: Any = None
            for atom in monomial:
                term = self._combined(tirx.Mul, term, self._atom(atom, special))
            if term is None:
                term = self.number(factor)
            elif factor != 1:
                term = self._combined(tirx.Mul, term, self.number(factor))
            total = self._combined(tirx.Add, total, term)
        return self.number(0) if total is None else total

    def number(self, value: int) -> Any:
        """A size or a position."""
        return tirx.IntImm(self.integer, value)

    def _combined(self, operator: Any, a: Any, b: Any) -> Any:
        if a is None:
            return b
        width = max(lanes_of(a), lanes_of(b))
        return operator(self.wide(a, width), self.wide(b, width))

    def _atom(self, atom: Any, special: Mapping[Axis, Any]) -> Any:
        if isinstance(atom, Axis):
            return special.get(atom, self.axes.get(atom))
        if isinstance(atom, Size):
            return self._sizes[atom.name]
        if isinstance(atom, Quotient | Remainder):
            value, by = self._polynomial(atom.value, special), self._polynomial(atom.by, special)
            if any(isinstance(inner, Quotient | Remainder | Data) for inner in atom.value.atoms()):
                value = self._once(atom.value, value, by)
            return self._combined(floor_division if isinstance(atom, Quotient) else floor_remainder, value, by)
        return cast(self.scalar(atom.scalar), self.integer)


def span(start: Any, width: int) -> Any:
    """The positions from `start` on, as many as there are lanes."""
    return tirx.Ramp(start, int64(1), width) if width > 1 else start
