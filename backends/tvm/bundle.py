"""Take small kernels that do the same to other tensors together: one launch, and one loop that all threads share.

An optimizer's update is one small kernel for each parameter, and to start so many takes longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.backends.tvm.inplace import Item
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.schedule.line import Line, line_of

LARGE = 1 << 18
"""Elements from which on a kernel is as well off alone: its start is nothing beside its work."""

MOST = 1000
"""Tensors that one launch takes at most."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """Lines of one key that do not depend on one another."""

    lines: tuple[Line, ...]

    @property
    def longest(self) -> Line:
        """The line after which the code is written."""
        return max(self.lines, key=lambda line: line.length)

    @property
    def nodes(self) -> list[str]:
        """The nodes of the graph that it computes."""
        return [node for line in self.lines for node in line.kernel.nodes]

    @property
    def into(self) -> dict[Value, Value]:
        """By result the value in whose memory it is written."""
        return {value: target for line in self.lines for value, target in line.kernel.into.items()}

    @property
    def stored(self) -> list[Value]:
        """All results."""
        return [value for line in self.lines for value in line.kernel.stored]

    @property
    def memory(self) -> dict[Value, None]:
        """All that is touched, in a stable order."""
        return dict.fromkeys(value for line in self.lines for value in line.memory)


def bundled(items: Sequence[Item], base: Callable[[Value], Value], apart: frozenset[str]) -> list[Item | Bundle]:
    """The items, with lines that can run together at the place of the first of them.

    base: what a view is a view of. apart: nodes whose kernels stay alone.
    """
    order = _Order(base)
    bundles: dict[int, list[Line]] = {}
    for number, item in enumerate(items):
        earliest = order.earliest(item)
        line = line_of(item) if isinstance(item, Kernel) and _is_small(item, apart) else None
        place = number
        if line is not None:
            fitting = (at for at, lines in bundles.items() if at >= earliest and _takes(lines, line))
            place = next(fitting, number)
            bundles.setdefault(place, []).append(line)
        order.put(item, place)
    taken = {id(line.kernel) for lines in bundles.values() for line in lines[1:]}
    several = {at: Bundle(tuple(lines)) for at, lines in bundles.items() if len(lines) > 1}
    return [several.get(number, item) for number, item in enumerate(items) if id(item) not in taken]


def _is_small(kernel: Kernel, apart: frozenset[str]) -> bool:
    elements = kernel.elements.constant
    return elements is not None and elements < LARGE and not apart.intersection(kernel.nodes)


def _takes(lines: Sequence[Line], line: Line) -> bool:
    """Whether a line can be one of these: all do the same, and they are no more than a launch takes."""
    longest = max(lines, key=lambda one: one.length)
    return longest.fits(line) and (len(lines) + 1) * len(line.memory) <= MOST


class _Order:
    """Where what is read and written comes to stand, and so where something can stand at the earliest."""

    def __init__(self, base: Callable[[Value], Value]) -> None:
        self._base = base
        self._written: dict[Value, int] = {}
        self._read: dict[Value, int] = {}

    def earliest(self, item: Item) -> int:
        """The first place behind all that writes what the item touches, or reads what it writes."""
        read, written = self._touched(item)
        before = [self._written[v] for v in (*read, *written) if v in self._written]
        before += [self._read[v] for v in written if v in self._read]
        return max(before, default=-1) + 1

    def put(self, item: Item, place: int) -> None:
        read, written = self._touched(item)
        for known, values in ((self._read, read), (self._written, written)):
            known.update({value: max(place, known.get(value, place)) for value in values})

    def _touched(self, item: Item) -> tuple[set[Value], set[Value]]:
        if isinstance(item, Kernel):
            written = {self._base(value) for value in (*item.stored, *item.into.values())}
            return {self._base(value) for value in item.reads()}, written
        return {self._base(value) for value in item.inputs}, {self._base(value) for value in item.outputs}
