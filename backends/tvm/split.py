"""Split long reductions of few results in two, so that threads can share them and sums stay exact."""

from __future__ import annotations

from bridge.backends.tvm.index import Axis, Index, product
from bridge.backends.tvm.loops import Computation, Step, Value
from bridge.backends.tvm.scalar import Load, Rewriter

FEW = 8
"""Results from which on a reduction has rows enough to share among threads."""

LONG = 1 << 15
"""Terms from which on it is worth it."""

PARTS = (32, 16, 64, 24, 48, 20, 40, 28, 12, 8)
"""Numbers of parts, the best first; the first that divides an axis is taken, so the order of summation is fixed."""


def split_reductions(steps: list[Step]) -> list[Step]:
    """Each long reduction of few results as one of partial results and one over those."""
    return [part for step in steps for part in _split(step)]


def _split(step: Step) -> list[Step]:
    if not isinstance(step, Computation) or not step.reduced:
        return [step]
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if results is None or terms is None or not 0 < results < FEW or terms < LONG:
        return [step]
    found = next(((a, p) for p in PARTS for a in step.reduced if (a.extent.constant or 0) % p == 0), None)
    return [step] if found is None else _parts(step, *found)


def _parts(step: Computation, axis: Axis, parts: int) -> list[Step]:
    part = Axis("part", Index.of(parts))
    within = Axis(axis.name, axis.extent // parts)
    rows = tuple(Axis(a.name, a.extent) for a in step.axes)
    into = {axis: Index.of(part) * within.extent + Index.of(within)}
    into |= {old: Index.of(new) for old, new in zip(step.axes, rows, strict=True)}
    partial = Value(f"{step.out.name}.parts", (Index.of(parts), *step.out.shape), step.out.dtype)
    reduced = tuple(within if a is axis else a for a in step.reduced)
    body = Rewriter(into)(step.body)
    first = Computation(partial, (part, *rows), body, reduced, step.combine, step.nodes)
    over = Axis("part", Index.of(parts))
    read = tuple(Index.of(a) if a.extent != 1 else Index({}) for a in step.axes)
    whole = Load(partial, (Index.of(over), *read))
    return [first, Computation(step.out, step.axes, whole, (over,), step.combine, step.nodes)]
