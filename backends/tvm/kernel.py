"""A group of computations that become one loop nest.

A kernel has row axes and column axes. Every member either runs over the rows (a reduction over the columns, or what
is computed from such) or over rows and columns. Whatever lies between members and memory is written into the
expressions of the members, so a value is computed where it is used, and once, if it is used at one index only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from bridge.backends.tvm.index import Axis, Index, product, ravel, unravel
from bridge.backends.tvm.loops import Computation, Value
from bridge.backends.tvm.scalar import Load, Reduced, Rewriter, Scalar, walk

MAX_MEMBERS = 24
MAX_NODES = 1500
"""Caps on the size of a kernel: LLVM's time grows faster than a kernel does."""


class NotLocal(Exception):
    """A member would read another one elsewhere than at the element that is being computed."""


class Kernel:
    """Members that share row and column axes. Built by `seeded`, grown by `joined`."""

    def __init__(
        self, rows: Sequence[Axis], cols: Sequence[Axis], full: tuple[Sequence[Index], Sequence[Index]]
    ) -> None:
        self.rows = tuple(rows)
        self.cols = tuple(cols)
        self.members: list[Computation] = []
        self.bodies: dict[Value, Scalar] = {}
        self.stored: list[Value] = []
        self.into: dict[Value, Value] = {}
        self._full_shape, self._full_index = full
        self._canonical: dict[Value, tuple[Index, ...]] = {}
        self._places: dict[Value, dict[Axis, Index]] = {}
        self._memo: dict[tuple[Value, tuple[Index, ...]], tuple[Scalar, tuple[str, ...]]] = {}
        self._touched: list[str] = []
        self._nodes: dict[str, None] = {}

    @staticmethod
    def seeded(seed: Computation) -> Kernel:
        """An empty kernel with the axes of one computation. `joined` has still to be called for it."""
        rows = [a for a in seed.axes if a.extent != 1]
        shape, index = [a.extent for a in rows], [Index.of(a) for a in rows]
        if seed.reduced:
            shape, index = _operand(seed) or (
                [a.extent for a in (*rows, *seed.reduced)],
                [Index.of(a) for a in (*rows, *seed.reduced)],
            )
        return Kernel(rows, seed.reduced, (shape, index))

    def joined(self, computation: Computation, inline: Callable[[Value], Computation | None]) -> bool:
        """Take the computation in, if it fits. `inline` gives the computation of a value that is not in memory."""
        place = self._place(computation)
        if place is None or len(self.members) >= MAX_MEMBERS:
            return False
        canonical = tuple(place[a] for a in computation.axes)
        self._touched = list(computation.nodes)
        try:
            body = self._expanded(computation.body, place, inline)
        except NotLocal:
            return False
        if sum(1 for _ in walk(body)) > MAX_NODES and self.members:
            return False
        self.members.append(computation)
        self._nodes.update(dict.fromkeys(self._touched))
        self.bodies[computation.out] = body
        self._canonical[computation.out] = canonical
        self._places[computation.out] = place
        return True

    def copied(self) -> Kernel:
        """A kernel of its own that holds the same."""
        kernel = Kernel(self.rows, self.cols, (self._full_shape, self._full_index))
        kernel.members, kernel.stored = list(self.members), list(self.stored)
        kernel.bodies, kernel.into, kernel._memo = dict(self.bodies), dict(self.into), dict(self._memo)
        kernel._canonical, kernel._places, kernel._nodes = dict(self._canonical), dict(self._places), dict(self._nodes)
        return kernel

    @property
    def nodes(self) -> list[str]:
        """The nodes of the graph that the kernel computes, in whole or in part, those written into its members too."""
        return list(self._nodes)

    def index_of(self, value: Value) -> tuple[Index, ...]:
        """Where a member's result lies, over the axes of the kernel."""
        return self._canonical[value]

    def is_reduction(self, value: Value) -> bool:
        return any(m.out is value and m.reduced for m in self.members)

    def combine_of(self, value: Value) -> str:
        return next(m.combine for m in self.members if m.out is value)

    def runs_over_columns(self, value: Value) -> bool:
        """Whether a member has an element for each column."""
        return any(self._uses(self._canonical[value], a) for a in self.cols)

    @property
    def elements(self) -> Index:
        """The size of the whole iteration space."""
        return product(a.extent for a in (*self.rows, *self.cols))

    def reads(self) -> dict[Value, None]:
        """The values that are read from memory, in a stable order."""
        found: dict[Value, None] = {}
        for body in self.bodies.values():
            for node in walk(body):
                if isinstance(node, Load):
                    found[node.value] = None
        return found

    @staticmethod
    def _uses(index: Sequence[Index], axis: Axis) -> bool:
        return any(i.uses(axis) for i in index)

    def _place(self, computation: Computation) -> dict[Axis, Index] | None:
        """What the computation's axes are in terms of the kernel's, or None where it does not fit."""
        rows = product(a.extent for a in self.rows)
        cols = product(a.extent for a in self.cols)
        spatial = product(a.extent for a in computation.axes)
        reduced = product(a.extent for a in computation.reduced)
        if computation.reduced:
            if not self.cols or spatial != rows or reduced != cols:
                return None
            return {**_flat(self.rows, computation.axes), **_flat(self.cols, computation.reduced)}
        if spatial == rows * cols:
            flat = ravel(self._full_index, self._full_shape)
            return dict(zip(computation.axes, unravel(flat, [a.extent for a in computation.axes]), strict=True))
        if spatial == rows:
            return _flat(self.rows, computation.axes)
        return None

    def _expanded(self, body: Scalar, place: Mapping[Axis, Index], inline: Callable) -> Scalar:
        def resolve(load: Load) -> Scalar:
            key = (load.value, load.index)
            if key in self._memo:
                self._touched.extend(self._memo[key][1])
            else:
                before = len(self._touched)
                self._memo[key] = self._resolved(load, inline), tuple(self._touched[before:])
            return self._memo[key][0]

        return Rewriter(place, resolve)(body)

    def _resolved(self, load: Load, inline: Callable[[Value], Computation | None]) -> Scalar:
        """A load as the kernel sees it: from memory, from a reduction of its own, or computed on the spot."""
        if load.value in self._canonical:
            if load.index != self._canonical[load.value]:
                raise NotLocal(load.value.name)
            if self.is_reduction(load.value):
                return Reduced(load.value)
            return self.bodies[load.value]
        source = inline(load.value)
        if source is None:
            return load
        self._touched.extend(source.nodes)
        return self._expanded(source.body, dict(zip(source.axes, load.index, strict=True)), inline)


def _flat(own: Sequence[Axis], other: Sequence[Axis]) -> dict[Axis, Index]:
    """The axes of `other` at the same row-major position as `own`."""
    flat = ravel([Index.of(a) for a in own], [a.extent for a in own])
    return dict(zip(other, unravel(flat, [a.extent for a in other]), strict=True))


def _operand(seed: Computation) -> tuple[list[Index], list[Index]] | None:
    """Shape and index of an operand that a reduction reads once, each dim by axes of its own."""
    wanted = {a for a in (*seed.axes, *seed.reduced) if a.extent != 1}
    for node in walk(seed.body):
        if not isinstance(node, Load):
            continue
        dims = [(size, i) for size, i in zip(node.value.shape, node.index, strict=True) if size != 1]
        read = [_read_once(index, size, wanted) for size, index in dims]
        axes = [axis for some in read if some for axis in some]
        if all(read) and len(axes) == len(wanted) and set(axes) == wanted:
            return [size for size, _ in dims], [index for _, index in dims]
    return None


def _read_once(index: Index, size: Index, axes: Collection[Axis]) -> list[Axis] | None:
    """The axes whose row-major position an index is, if it takes each of `size` values once."""
    used = [axis for axis in axes if index.uses(axis)]
    used.sort(key=lambda a: (c.constant or 0) if (c := index.coefficient(a)) else 0, reverse=True)
    if product(a.extent for a in used) != size:
        return None
    return used if index == ravel([Index.of(a) for a in used], [a.extent for a in used]) else None
