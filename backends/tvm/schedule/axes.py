"""Split, order and merge the axes of a nest, so that indices have no division left and memory is walked in order."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.backends.tvm.index import Axis, Index, Quotient, Remainder
from bridge.backends.tvm.scalar import Load, Position, walk
from bridge.backends.tvm.schedule.nest import Nest


def laid_out(nest: Nest) -> Nest:
    """The nest with its axes split where indices divide them, put in the order of memory and merged into long walks."""
    for _ in range(4):
        divisors = _divisors(nest)
        if not divisors:
            break
        nest = _split(nest, divisors)
    nest = _ordered(nest)
    for group in ("rows", "cols"):
        nest = _merged(nest, group)
    return nest


def _indices(nest: Nest) -> list[Index]:
    """Every index by which something is read, written or computed, dim by dim."""
    found = [s.offset for s in nest.stores]
    seen: set[int] = set()
    for root in nest.scalars:
        for node in walk(root):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Load):
                found.extend((*node.index, node.value.offset(node.index)))
            elif isinstance(node, Position):
                found.append(node.index)
    return found


def _divisors(nest: Nest) -> dict[Axis, Index]:
    """For an axis that an index divides by what divides its extent: the smallest such number, else such a size."""
    found: dict[Axis, Index] = {}
    axes = {*nest.rows, *nest.cols}
    for index in _indices(nest):
        for atom in index.atoms():
            if not isinstance(atom, Quotient | Remainder):
                continue
            for axis in axes:
                by = _divisor(atom, axis)
                known = found.get(axis)
                if by is not None and (known is None or _smaller(by, known)):
                    found[axis] = by
    return found


def _divisor(atom: Quotient | Remainder, axis: Axis) -> Index | None:
    """How many steps of an axis a division takes for one, where they are a part of the axis and divide it."""
    step = atom.value.coefficient(axis)
    if step is None or not step.terms or any(f < 0 for f in step.terms.values()) or atom.by % step != 0:
        return None
    by = atom.by // step
    known = by.constant is not None and axis.extent.constant is not None
    if by == 1 or by == axis.extent or axis.extent % by != 0 or (known and by.constant >= axis.extent.constant):  # type: ignore[operator]
        return None
    return by


def _smaller(one: Index, other: Index) -> bool:
    """A number is smaller than a size: it is split off first, from what the size leaves of the axis."""
    return one.constant is not None and (other.constant is None or one.constant < other.constant)


def _split(nest: Nest, divisors: dict[Axis, Index]) -> Nest:
    into: dict[Axis, Index] = {}

    def replaced(axes: Sequence[Axis]) -> list[Axis]:
        result: list[Axis] = []
        for axis in axes:
            if axis not in divisors:
                result.append(axis)
                continue
            by = divisors[axis]
            outer = Axis(f"{axis.name}o", axis.extent // by)
            inner = Axis(f"{axis.name}i", by)
            into[axis] = Index.of(outer) * by + Index.of(inner)
            result.extend((outer, inner))
        return result

    rows, cols = replaced(nest.rows), replaced(nest.cols)
    return nest.rewritten(into, rows, cols)


def _ordered(nest: Nest) -> Nest:
    """Rows and columns by falling step in memory: of the first result that has the axis, else of the first read."""
    offsets = nest.offsets()

    def step(axis: Axis) -> int:
        for offset in offsets:
            factor = offset.coefficient(axis)
            if factor is not None and factor.terms:
                return abs(factor.constant) if factor.constant is not None else 1 << 62
        return 0

    rows = tuple(sorted(nest.rows, key=step, reverse=True))
    cols = tuple(sorted(nest.cols, key=step, reverse=True))
    return Nest(rows, cols, nest.reductions, nest.stores)


def _merged(nest: Nest, group: str) -> Nest:
    """Neighbouring axes that every index walks as one become one."""
    while True:
        axes = nest.rows if group == "rows" else nest.cols
        indices = [i for i in _flat_indices(nest) if any(i.uses(a) for a in axes)]
        pair = next((n for n in range(len(axes) - 1) if _one_walk(indices, axes[n], axes[n + 1])), None)
        if pair is None:
            return nest
        outer, inner = axes[pair], axes[pair + 1]
        both = Axis(inner.name, outer.extent * inner.extent)
        into = {outer: Index.of(both) // inner.extent, inner: Index.of(both) % inner.extent}
        new = (*axes[:pair], both, *axes[pair + 2 :])
        rows, cols = (new, nest.cols) if group == "rows" else (nest.rows, new)
        nest = nest.rewritten(into, rows, cols)


def _flat_indices(nest: Nest) -> list[Index]:
    found = nest.offsets()
    for root in nest.scalars:
        for node in walk(root):
            if isinstance(node, Position):
                found.append(node.index)
            elif isinstance(node, Load) and not _linear(node.value.offset(node.index), nest):
                found.extend(node.index)
    return found


def _linear(index: Index, nest: Nest) -> bool:
    return all(index.coefficient(a) is not None for a in (*nest.rows, *nest.cols))


def _one_walk(indices: Sequence[Index], outer: Axis, inner: Axis) -> bool:
    for index in indices:
        high, low = index.coefficient(outer), index.coefficient(inner)
        if high is None or low is None or high != low * inner.extent:
            return False
    return True
