"""What loops written by hand read is computed where they read it, and takes no memory.

A scatter reads each of its indices and of the elements that it writes once. Indices are mostly a row of edges, expanded
to the width of the elements; these are mostly gathered by another row, and what they are added to is zeros. So what
only moves elements, and what costs little and is read by nobody else, becomes part of the loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bridge.backends.tvm.costs import DEAR, moves, operations
from bridge.backends.tvm.index import Axis, Index
from bridge.backends.tvm.loops import Call, Computation, Loops, Opaque, Step, Value
from bridge.backends.tvm.scalar import Constant, Load, Rewriter, Scalar, walk
from bridge.backends.tvm.schedule.opaque import Reading, readings

CHEAP, LOADS = DEAR - 1, 4
"""Operations and loads of an element that is computed inside of serial loops, where neither lanes nor threads are."""


def absorbed(steps: Sequence[Step], loops: Loops, apart: frozenset[str]) -> list[Step]:
    """The steps, with what opaque ones can compute themselves taken into them. The nodes in `apart` are left alone."""
    absorb = _Absorb(steps, loops, apart)
    return [absorb.taken(step) if isinstance(step, Opaque) else step for step in steps]


class _Absorb:
    def __init__(self, steps: Sequence[Step], loops: Loops, apart: frozenset[str]) -> None:
        self._views, self._apart = loops.views, apart
        self._makers = {step.out: step for step in steps if isinstance(step, Computation)}
        calls = (value for step in steps if isinstance(step, Call) for value in step.inputs)
        self._outside = {self._base(value) for value in (*loops.outputs, *calls, *loops.into)}
        self._readers = self._counted(steps)

    def _counted(self, steps: Sequence[Step]) -> Counter[Value]:
        """How many steps read each value, without those whose own results nobody reads."""
        readers: Counter[Value] = Counter()
        for step in reversed(steps):
            if not isinstance(step, Computation) or step.out in readers or self._base(step.out) in self._outside:
                readers.update(_read(step))
        return readers

    def taken(self, step: Opaque) -> Opaque:
        """The step, with computations for those of its arguments that it can compute."""
        if self._apart.intersection(step.nodes) or all(v.compact and self._maker(v) is None for v in step.inputs):
            return step
        nodes = list(step.nodes)
        pairs = zip(step.arguments, readings(step.function), strict=False)
        arguments = tuple(self._argument(argument, how, nodes) for argument, how in pairs)
        return Opaque(step.name, step.function, arguments, step.outputs, step.sizes, tuple(dict.fromkeys(nodes)))

    def _argument(self, value: Value | Computation, how: Reading, nodes: list[str]) -> Value | Computation:
        if isinstance(value, Computation) or how is Reading.ANYHOW:
            return value
        maker = self._maker(value)
        if maker is None:
            return value if value.compact or value in self._makers else as_it_lies(value)
        touched: list[str] = []
        body = self._expanded(maker, [Index.of(axis) for axis in maker.axes], touched)
        moves = isinstance(body, Load | Constant)
        if not moves and (how is not Reading.ONCE or not self._is_alone(maker.out) or not _is_cheap(body)):
            return value
        nodes += touched
        return Computation(maker.out, maker.axes, body, nodes=maker.nodes)

    def _maker(self, value: Value) -> Computation | None:
        """What makes a value that need not be in memory; a view is there as what it is a view of."""
        maker = self._makers.get(value)
        if maker is None or maker.reduced or (self._apart.intersection(maker.nodes) and value not in self._views):
            return None
        return None if value in self._outside else maker

    def _expanded(self, maker: Computation, place: Sequence[Index], nodes: list[str]) -> Scalar:
        """The body at a place, with all written into it that only moves elements, or that nobody else reads."""

        def resolved(load: Load) -> Scalar:
            source = self._maker(load.value)
            if source is None or not (moves(source) or (self._is_alone(load.value) and _is_cheap(source.body))):
                return load
            return self._expanded(source, load.index, nodes)

        nodes += maker.nodes
        return Rewriter(dict(zip(maker.axes, place, strict=True)), resolved)(maker.body)

    def _is_alone(self, value: Value) -> bool:
        """Whether one step reads a value, and it is in memory for nothing else."""
        return self._readers[value] == 1 and value not in self._outside

    def _base(self, value: Value) -> Value:
        while value in self._views:
            value = self._views[value]
        return value


def as_it_lies(value: Value, to: Value | None = None, nodes: tuple[str, ...] = ()) -> Computation:
    """The value read element by element; `to` is what the elements make, the value itself if not given."""
    axes = tuple(Axis(f"c{i}", size) for i, size in enumerate(value.shape))
    body = Load(value, tuple(Index.of(a) if a.extent != 1 else Index({}) for a in axes))
    return Computation(to or value, axes, body, nodes=nodes)


def _read(step: Step) -> set[Value]:
    if isinstance(step, Computation):
        return {node.value for node in walk(step.body) if isinstance(node, Load)}
    return set(step.inputs)


def _is_cheap(body: Scalar) -> bool:
    """Whether an element takes a few operations of the processor's own."""
    nodes = set(walk(body))
    return sum(map(operations, nodes)) <= CHEAP and sum(isinstance(node, Load) for node in nodes) <= LOADS
