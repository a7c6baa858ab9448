"""A kernel with its loops laid out: which axes, in which order, which of them runs in vector lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.backends.tvm.index import Axis, Index, product
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import Load, Reduced, Rewriter, Scalar, walk


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduction of the kernel. `level` is one more than the highest level that its body reads."""

    value: Value
    body: Scalar
    combine: str
    level: int


@dataclass(frozen=True, eq=False)
class Store:
    """A result that goes to memory, at an offset counted in elements. `level` as for a reduction, 0 for none."""

    value: Value
    body: Scalar
    offset: Index
    level: int
    over_columns: bool


@dataclass(frozen=True, eq=False)
class Nest:
    """Loops over rows, outermost first, and inside them over columns, once for each level."""

    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]
    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]

    @property
    def scalars(self) -> list[Scalar]:
        return [*(r.body for r in self.reductions), *(s.body for s in self.stores)]

    @property
    def elements(self) -> Index:
        return product(a.extent for a in (*self.rows, *self.cols))

    def offsets(self) -> list[Index]:
        """Where memory is read and written."""
        found = [s.offset for s in self.stores]
        seen: set[int] = set()
        for root in self.scalars:
            for node in walk(root):
                if isinstance(node, Load) and id(node) not in seen:
                    seen.add(id(node))
                    found.append(node.value.offset(node.index))
        return found

    def rewritten(self, into: dict[Axis, Index], rows: Sequence[Axis], cols: Sequence[Axis]) -> Nest:
        """The nest over other axes."""

        rewrite = Rewriter(into)

        def body(scalar: Scalar) -> Scalar:
            return rewrite(scalar)

        reductions = tuple(Reduction(r.value, body(r.body), r.combine, r.level) for r in self.reductions)
        stores = tuple(
            Store(s.value, body(s.body), rewrite.index(s.offset), s.level, s.over_columns) for s in self.stores
        )
        return Nest(tuple(rows), tuple(cols), reductions, stores)


def nest_of(kernel: Kernel) -> Nest:
    """The loops of a kernel in the order of its axes: what it stores, and the reductions that this needs."""
    levels: dict[Value, int] = {}
    needed: set[Value] = set()
    for member in reversed(kernel.members):
        if member.out in kernel.stored or member.out in needed:
            needed.update(n.value for n in walk(kernel.bodies[member.out]) if isinstance(n, Reduced))
    reductions: list[Reduction] = []
    stores: list[Store] = []
    for member in kernel.members:
        value, body = member.out, kernel.bodies[member.out]
        level = max((levels[n.value] for n in walk(body) if isinstance(n, Reduced)), default=0)
        if member.reduced and (value in needed or value in kernel.stored):
            levels[value] = level + 1
            reductions.append(Reduction(value, body, member.combine, level + 1))
            body, level = Reduced(value), level + 1
        if value in kernel.stored:
            offset = value.offset(kernel.index_of(value))
            stores.append(Store(value, body, offset, level, kernel.runs_over_columns(value)))
    return Nest(kernel.rows, kernel.cols, tuple(reductions), tuple(stores))
