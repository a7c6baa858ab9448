"""Split long reductions of few results in two, so that there is work for every thread and sums stay exact."""

from __future__ import annotations

from collections.abc import Callable

from bridge.backends.tvm.index import Axis, Index, product
from bridge.backends.tvm.loops import Computation, Step, Value
from bridge.backends.tvm.scalar import Load, Rewriter, walk

FEW = 8
"""Results from which on a reduction has rows enough to share among the threads of a CPU."""

LONG = 1 << 15
"""Terms from which on it is worth it."""

PARTS = (32, 16, 64, 24, 48, 20, 40, 28, 12, 8)
"""Numbers of parts, the best first; the first that divides an axis is taken, so the order of summation is fixed."""

THREADS = 1 << 18
"""Threads that a large GPU runs at once."""

HEAVY = 1 << 18
"""Elements from which on a reduction should keep all of them busy."""

BLOCK, OWN, WARPS, PATCH = 1024, 16, 8, 4
"""Threads of a block at most, terms of one of them at least, how many threads share a result in a column, and how many
such results a thread has a part in."""

Choice = Callable[[Computation], tuple[Axis, int] | None]
"""Which axis of a reduction is split into how many parts."""


def split_reductions(steps: list[Step], choose: Choice) -> list[Step]:
    """Each reduction that is to be split as one of partial results and one over those."""
    return [part for step in steps for part in _split(step, choose)]


def for_cpu(step: Computation) -> tuple[Axis, int] | None:
    """Long reductions of few results."""
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if results is None or terms is None or not 0 < results < FEW or terms < LONG:
        return None
    return next(((a, p) for p in PARTS for a in step.reduced if (a.extent.constant or 0) % p == 0), None)


def for_gpu(step: Computation) -> tuple[Axis, int] | None:
    """Reductions whose results, with the threads that can share each, leave most of a GPU idle."""
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if not results or not terms or results * terms < HEAVY:
        return None
    in_rows = not _is_along(step)
    sharing, least = (WARPS // PATCH, 4 * WARPS) if in_rows else (min(BLOCK, max(1, terms // OWN)), BLOCK)
    wanted = min(THREADS // (results * sharing), terms // least)
    if wanted < 2:
        return None
    found = [(a, p) for a in step.reduced for p in _divisors(a.extent.constant or 1) if 2 <= p <= 2 * wanted]
    return min(found, key=lambda one: abs(one[1] - wanted), default=None)


def _divisors(number: int) -> list[int]:
    return [n for n in range(2, min(number, 2 * THREADS // BLOCK * OWN) + 1) if number % n == 0]


def _is_along(step: Computation) -> bool:
    """Whether the terms of a result lie next to one another, in most of the largest that is read."""
    loads = [node for node in walk(step.body) if isinstance(node, Load)]
    most = max((node.value.numel.constant or 0 for node in loads), default=0)
    votes = 0
    for node in loads:
        if node.value.numel == most:
            offset = node.value.offset(node.index)
            votes += any(offset.coefficient(a) == 1 for a in step.reduced)
            votes -= any(offset.coefficient(a) == 1 for a in step.axes)
    return votes >= 0


def _split(step: Step, choose: Choice) -> list[Step]:
    chosen = choose(step) if isinstance(step, Computation) and step.reduced else None
    return [step] if chosen is None else _parts(step, *chosen)  # type: ignore[arg-type]


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
