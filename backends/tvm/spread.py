"""Sum the squares of what differs from a mean in the walk that makes the mean, where both are summed in parts.

On a GPU a part takes its first term for its mean: it sums what terms differ from that by, and the squares of it. What
the mean of all is off from a part's own is made up for when the parts are put together. Of n terms in a part this loses
no more digits than n costs, however far the mean is from zero, since none of them is further from the first than n
deviations. On a CPU a part is small enough to stay in the cache, and is walked over again with its own mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from bridge.backends.tvm.index import Axis, Index, product
from bridge.backends.tvm.loops import Computation, Step, Value
from bridge.backends.tvm.scalar import Constant, Load, Operation, Rewriter, Scalar

Makers = Mapping[Value, Computation | None]
"""What computes a value element by element; None for a view that shows some elements again and again."""


@dataclass(frozen=True)
class Cut:
    """A reduction in parts: an axis for each axis that is cut, those of the results, what is left of those that are
    reduced, and the body over all of them."""

    parts: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    within: tuple[Axis, ...]
    body: Scalar


@dataclass(frozen=True)
class Spread:
    """squares: the sum of the squares of the terms of `total` without their mean, which is read by `mean`."""

    total: Computation
    squares: Computation
    mean: Scalar


def spreads(steps: Sequence[Step], makers: Makers) -> list[Spread]:
    """Where a program sums terms, and then the squares of what they differ from their mean by."""
    sums = {s.out: s for s in steps if isinstance(s, Computation) and s.reduced and s.combine == "sum"}
    found = (_spread(step, sums, makers) for step in sums.values())
    return [one for one in found if one is not None]


def _spread(squares: Computation, sums: Mapping[Value, Computation], makers: Makers) -> Spread | None:
    root = _seen(squares.body, makers)
    if not _is(root, "Mul") or root.arguments[0] != root.arguments[1]:
        return None
    difference = _seen(root.arguments[0], makers)
    if not _is(difference, "Sub"):
        return None
    term, mean = difference.arguments
    average = _seen(mean, makers)
    if not _is(average, "Div") or mean.axes & set(squares.reduced):
        return None
    held, count = (_seen(part, makers) for part in average.arguments)
    terms = product(axis.extent for axis in squares.reduced).constant
    if not isinstance(held, Load) or not isinstance(count, Constant) or count.value != terms:
        return None
    total = sums.get(held.value)
    if total is None or held.index != _place(squares.axes) or not _alike(total, squares):
        return None
    into = dict(zip((*total.axes, *total.reduced), map(Index.of, (*squares.axes, *squares.reduced)), strict=True))
    if _whole(Rewriter(into)(total.body), makers) != _whole(term, makers):
        return None
    return Spread(total, squares, mean)


def _is(node: Scalar, name: str) -> TypeGuard[Operation]:
    return isinstance(node, Operation) and node.name == name


def _alike(one: Computation, other: Computation) -> bool:
    axes = (one.axes, other.axes), (one.reduced, other.reduced)
    return all([a.extent for a in mine] == [a.extent for a in its] for mine, its in axes)


def _place(axes: Sequence[Axis]) -> tuple[Index, ...]:
    return tuple(Index.of(axis) if axis.extent != 1 else Index({}) for axis in axes)


def _seen(node: Scalar, makers: Makers) -> Scalar:
    """What a load reads, as far as that is computed element by element."""
    while isinstance(node, Load):
        maker = makers.get(node.value)
        if maker is None:
            return node
        node = Rewriter(dict(zip(maker.axes, node.index, strict=True)))(maker.body)
    return node


def _whole(node: Scalar, makers: Makers, depth: int = 4) -> Scalar:
    """A scalar with what is computed element by element written in, so deep."""

    def read(load: Load) -> Scalar:
        seen = _seen(load, makers)
        return seen if isinstance(seen, Load) or not depth else _whole(seen, makers, depth - 1)

    return Rewriter({}, read)(node)


def summed_at_once(spread: Spread, cut: Cut) -> tuple[list[Computation], Computation]:
    """The steps in place of the first sum, and the one in place of the second. cut: the first sum in parts."""
    dtype, count = spread.total.out.dtype, product(axis.extent for axis in cut.within)
    first = _if_finite(Rewriter({axis: Index({}) for axis in cut.within})(cut.body))
    difference = _of("Sub", cut.body, first)
    parts = [
        Computation(_in_parts(step, cut), (*cut.parts, *cut.rows), body, cut.within, "sum", step.nodes)
        for step, body in (
            (spread.total, difference),
            (spread.squares, _of("Mul", difference, difference)),
        )
    ]
    over = tuple(Axis("part", axis.extent) for axis in cut.parts)

    def read(step: Computation) -> tuple[Scalar, Scalar, Scalar]:
        """What a part took for its mean, what its mean is off from that, and the sum of its squares."""
        into = dict(zip((*cut.parts, *cut.rows), map(Index.of, (*over, *step.axes)), strict=True))
        index = (*map(Index.of, over), *_place(step.axes))
        taken, (off, squares) = Rewriter(into)(first), (Load(part.out, index) for part in parts)
        return taken, _of("Div", off, terms), squares

    terms = Constant(float(count.constant or 0), dtype)
    taken, off, _ = read(spread.total)
    total = _of("Mul", terms, _of("Add", taken, off))
    taken, off, squares = read(spread.squares)
    away = _of("Sub", _of("Add", taken, off), spread.mean)
    own = _of("Sub", squares, _of("Mul", terms, _of("Mul", off, off)))
    all_squares = _of("Add", own, _of("Mul", terms, _of("Mul", away, away)))
    wholes = [
        Computation(step.out, step.axes, body, over, "sum", step.nodes)
        for step, body in ((spread.total, total), (spread.squares, all_squares))
    ]
    return [*parts, wholes[0]], wholes[1]


def _in_parts(step: Computation, cut: Cut) -> Value:
    return Value(f"{step.out.name}.parts", (*(a.extent for a in cut.parts), *step.out.shape), step.out.dtype)


def summed_part_by_part(spread: Spread, cut: Cut) -> tuple[list[Computation], Computation]:
    """The same with a part's own mean, for which a part is walked over twice: for a CPU, in whose cache it stays."""
    dtype = spread.total.out.dtype
    terms = Constant(float(product(axis.extent for axis in cut.within).constant or 0), dtype)
    axes, over = (*cut.parts, *cut.rows), tuple(Axis("part", axis.extent) for axis in cut.parts)

    def part(step: Computation, body: Scalar) -> Computation:
        return Computation(_in_parts(step, cut), axes, body, cut.within, "sum", step.nodes)

    sums = part(spread.total, cut.body)
    difference = _of("Sub", cut.body, _of("Div", Load(sums.out, (*map(Index.of, cut.parts), *_place(cut.rows))), terms))
    squares = part(spread.squares, _of("Mul", difference, difference))

    def read(step: Computation, value: Value) -> Scalar:
        return Load(value, (*map(Index.of, over), *_place(step.axes)))

    total = Computation(spread.total.out, spread.total.axes, read(spread.total, sums.out), over, "sum", sums.nodes)
    away = _of("Sub", _of("Div", read(spread.squares, sums.out), terms), spread.mean)
    body = _of("Add", read(spread.squares, squares.out), _of("Mul", terms, _of("Mul", away, away)))
    whole = Computation(spread.squares.out, spread.squares.axes, body, over, "sum", squares.nodes)
    return [sums, squares, total], whole


def _if_finite(node: Scalar) -> Scalar:
    """Zero for what is infinite, which differs from itself by no number: its mean is infinite, and stays so."""
    zero = Constant(0.0, node.dtype)
    is_finite = Operation("EQ", (_of("Sub", node, node), zero), "bool")
    return Operation("Select", (is_finite, node, zero), node.dtype)


def _of(name: str, *arguments: Scalar) -> Operation:
    return Operation(name, arguments, arguments[0].dtype)
