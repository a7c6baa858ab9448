"""Split long reductions of few results in two, so that there is work for every thread and sums stay exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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

MORE = 4
"""How many times too few the parts of one axis are for another one to be split as well: parts are to be added."""

Split = list[tuple[Axis, int]]
"""Which axes of a reduction are split, each into how many parts."""

Makers = Mapping[Value, Computation | None]
"""What computes a value element by element; None for a view that shows some elements again and again."""


def split_reductions(
    steps: list[Step], choose: Callable[[Computation, Makers], Split], views: Mapping[Value, Value]
) -> list[Step]:
    """Each reduction that is to be split as one of partial results and one over those. views: what each one shows."""
    makers: dict[Value, Computation | None]
    makers = {step.out: step for step in steps if isinstance(step, Computation) and not step.reduced}
    makers |= {view: None for view, whole in views.items() if view.numel != whole.numel}
    return [part for step in steps for part in _split(step, choose, makers)]


def for_cpu(step: Computation, makers: Makers) -> Split:
    """Long reductions of few results."""
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if results is None or terms is None or not 0 < results < FEW or terms < LONG:
        return []
    return [(a, p) for p in PARTS for a in step.reduced if (a.extent.constant or 0) % p == 0][:1]


def for_gpu(step: Computation, makers: Makers) -> Split:
    """Reductions whose results, with the threads that can share each, leave most of a GPU idle."""
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if not results or not terms or results * terms < HEAVY:
        return []
    in_rows = not _is_along(step, makers)
    sharing, least = (WARPS // PATCH, 4 * WARPS) if in_rows else (min(BLOCK, max(1, terms // OWN)), BLOCK)
    wanted = min(THREADS // (results * sharing), terms // least)
    chosen: Split = []
    while wanted >= 2:
        left = [a for a in step.reduced if a not in [axis for axis, _ in chosen]]
        found = [(a, p) for a in left for p in _divisors(a.extent.constant or 1) if 2 <= p <= 2 * wanted]
        if not found:
            break
        chosen.append(min(found, key=lambda one: abs(one[1] - wanted)))
        wanted //= MORE * chosen[-1][1]
    return chosen


def _divisors(number: int) -> list[int]:
    return [n for n in range(2, min(number, 2 * THREADS // BLOCK * OWN) + 1) if number % n == 0]


def _is_along(step: Computation, makers: Makers) -> bool:
    """Whether the terms of a result lie next to one another, in most of the largest that is read from memory.

    Where that does not say, as where its dimensions are joined to others, what lies between is asked.
    """
    loads = [node for node in walk(step.body) if isinstance(node, Load)]
    memory = [load for node in loads for load in _from_memory(node, makers)]
    return (_votes(memory, step) or _votes(loads, step)) >= 0


def _votes(loads: list[Load], step: Computation) -> int:
    """How many more of the largest lie along the terms than along the results."""
    most = max((node.value.numel.constant or 0 for node in loads), default=0)
    votes = 0
    for node in loads:
        if node.value.numel == most:
            offset = node.value.offset(node.index)
            votes += any(offset.coefficient(a) == 1 for a in step.reduced)
            votes -= any(offset.coefficient(a) == 1 for a in step.axes)
    return votes


def _from_memory(load: Load, makers: Makers, depth: int = 8) -> list[Load]:
    """What an element is computed from, element by element, as far as nothing says how it lies itself."""
    if load.value not in makers or not depth or not load.value.compact:
        return [load]
    maker = makers[load.value]
    if maker is None:
        return []
    body = Rewriter(dict(zip(maker.axes, load.index, strict=True)))(maker.body)
    found = [one for node in walk(body) if isinstance(node, Load) for one in _from_memory(node, makers, depth - 1)]
    return [one for one in found if one.value.numel == load.value.numel]


def _split(step: Step, choose: Callable[[Computation, Makers], Split], makers: Makers) -> list[Step]:
    if not isinstance(step, Computation) or not step.reduced:
        return [step]
    chosen = choose(step, makers)
    return _parts(step, chosen) if chosen else [step]


def _parts(step: Computation, chosen: Split) -> list[Step]:
    parts = [Axis("part", Index.of(count)) for _, count in chosen]
    within = {axis: Axis(axis.name, axis.extent // count) for axis, count in chosen}
    rows = tuple(Axis(a.name, a.extent) for a in step.axes)
    into = {
        axis: Index.of(part) * within[axis].extent + Index.of(within[axis]) for part, (axis, _) in zip(parts, chosen)
    }
    into |= {old: Index.of(new) for old, new in zip(step.axes, rows, strict=True)}
    counts = tuple(Index.of(count) for _, count in chosen)
    partial = Value(f"{step.out.name}.parts", (*counts, *step.out.shape), step.out.dtype)
    reduced = tuple(within.get(a, a) for a in step.reduced)
    body = Rewriter(into)(step.body)
    first = Computation(partial, (*parts, *rows), body, reduced, step.combine, step.nodes)
    over = tuple(Axis("part", count) for count in counts)
    read = tuple(Index.of(a) if a.extent != 1 else Index({}) for a in step.axes)
    whole = Load(partial, (*map(Index.of, over), *read))
    return [first, Computation(step.out, step.axes, whole, over, step.combine, step.nodes)]
