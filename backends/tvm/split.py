"""Split long reductions of few results in two, so that there is work for every thread and sums stay exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.backends.tvm.index import Axis, Index, product
from bridge.backends.tvm.loops import Computation, Step, Value
from bridge.backends.tvm.scalar import Load, Rewriter, walk
from bridge.backends.tvm.spread import Cut, Makers, Spread, spreads

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

FEW_TERMS, ENOUGH = 1 << 22, 8
"""Elements up to which a second kernel takes longer than a reduction that keeps an eighth of the threads busy."""

MORE = 4
"""How many times too few the parts of one axis are for another one to be split as well: parts are to be added."""

RESULTS, COLUMNS, ROWS = 64, 1 << 20, (128, 64, 96, 80, 112, 256)
"""Sums over columns from which on a CPU takes the squares with them, terms of all from which on, and rows of a part."""

Split = list[tuple[Axis, int]]
"""Which axes of a reduction are split, each into how many parts."""


Choose = Callable[[Computation, Makers], Split]
"""How a reduction is split: not at all if it names no axis."""


Together = Callable[[Spread, Cut], tuple[list[Computation], Computation]]
"""The steps in place of a sum in parts, and that in place of the sum of squares."""


def split_reductions(
    steps: list[Step],
    choose: Choose,
    at_once: Choose,
    together: Together,
    views: Mapping[Value, Value],
) -> list[Step]:
    """Each reduction that is to be split as one of partial results and one over those.

    views: what each one shows. at_once: how a sum is split whose terms are squared without their mean, and summed so:
    that is then done with the parts of the sum, as `together` writes it.
    """
    makers: dict[Value, Computation | None]
    makers = {step.out: step for step in steps if isinstance(step, Computation) and not step.reduced}
    makers |= {view: None for view, whole in views.items() if view.numel != whole.numel}
    chosen = {s.out: choose(s, makers) for s in steps if isinstance(s, Computation) and s.reduced}
    made: dict[Value, list[Computation]] = {}
    for one in spreads(steps, makers):
        parts = at_once(one.total, makers)
        if parts and one.total.out not in made:
            first, last = together(one, _cut(one.total, parts))
            made |= {one.total.out: first, one.squares.out: [last]}
    for step in steps:
        if isinstance(step, Computation) and chosen.get(step.out) and step.out not in made:
            made[step.out] = _parts(step, chosen[step.out])
    return [
        part for step in steps for part in (made.get(step.out, [step]) if isinstance(step, Computation) else [step])
    ]


def for_cpu(step: Computation, makers: Makers) -> Split:
    """Long reductions of few results."""
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if results is None or terms is None or not 0 < results < FEW or terms < LONG:
        return []
    return [(a, p) for p in PARTS for a in step.reduced if (a.extent.constant or 0) % p == 0][:1]


def columns_for_cpu(step: Computation, makers: Makers) -> Split:
    """Sums over rows of a large matrix: parts of few rows stay in the cache, where columns of it do not."""
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if results is None or terms is None or results < RESULTS or results * terms < COLUMNS or len(step.reduced) != 1:
        return []
    (axis,) = step.reduced
    parts = [terms // rows for rows in ROWS if terms % rows == 0]
    return [(axis, parts[0])] if parts and not _is_along(step, makers) else []


def for_gpu(step: Computation, makers: Makers) -> Split:
    """Reductions whose results, with the threads that can share each, leave most of a GPU idle."""
    results, terms = step.out.numel.constant, product(a.extent for a in step.reduced).constant
    if not results or not terms or results * terms < HEAVY:
        return []
    in_rows = not _is_along(step, makers)
    sharing, least = (WARPS // PATCH, 4 * WARPS) if in_rows else (min(BLOCK, max(1, terms // OWN)), BLOCK)
    wanted = min(THREADS // (results * sharing), terms // least)
    if results * terms <= FEW_TERMS and wanted <= ENOUGH:
        return []
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


def _cut(step: Computation, chosen: Split) -> Cut:
    parts = [Axis("part", Index.of(count)) for _, count in chosen]
    within = {axis: Axis(axis.name, axis.extent // count) for axis, count in chosen}
    rows = tuple(Axis(a.name, a.extent) for a in step.axes)
    into = {
        axis: Index.of(part) * within[axis].extent + Index.of(within[axis]) for part, (axis, _) in zip(parts, chosen)
    }
    into |= {old: Index.of(new) for old, new in zip(step.axes, rows, strict=True)}
    return Cut(tuple(parts), rows, tuple(within.get(a, a) for a in step.reduced), Rewriter(into)(step.body))


def _parts(step: Computation, chosen: Split) -> list[Computation]:
    cut = _cut(step, chosen)
    counts = tuple(part.extent for part in cut.parts)
    partial = Value(f"{step.out.name}.parts", (*counts, *step.out.shape), step.out.dtype)
    first = Computation(partial, (*cut.parts, *cut.rows), cut.body, cut.within, step.combine, step.nodes)
    over = tuple(Axis("part", count) for count in counts)
    read = tuple(Index.of(a) if a.extent != 1 else Index({}) for a in step.axes)
    whole = Load(partial, (*map(Index.of, over), *read))
    return [first, Computation(step.out, step.axes, whole, over, step.combine, step.nodes)]
