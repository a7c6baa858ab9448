"""Kernels that go along memory as it lies, element by element: what they compute, apart from whose memory it is.

Two such kernels of one key do the same over memory of other lengths, so one piece of code serves both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bridge.backends.tvm.index import Axis, Index
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import Constant, Guarded, Load, Operation, Scalar, walk
from bridge.backends.tvm.schedule.axes import laid_out
from bridge.backends.tvm.schedule.nest import Nest, nest_of


@dataclass(frozen=True, eq=False)
class Line:
    """A kernel along one axis of a known length.

    memory: all that it touches, in the order in which the key counts it; a result that replaces an input is in the
    input's place. walked: which of it is walked along; of the rest the first element is read.
    """

    kernel: Kernel
    nest: Nest
    length: int
    key: tuple[Any, ...]
    memory: tuple[Value, ...]
    walked: tuple[bool, ...]

    def fits(self, other: Line) -> bool:
        """Whether the two do the same. What has one element can be walked along or not, as the other needs it."""
        if self.key != other.key or len(self.memory) != len(other.memory):
            return False
        return 1 in (self.length, other.length) or self.walked == other.walked


def line_of(kernel: Kernel) -> Line | None:
    """The kernel as a line, if it is one."""
    length = kernel.elements.constant
    if not length or kernel.cols:
        return None
    nest = laid_out(nest_of(kernel))
    if nest.reductions or len(nest.rows) > 1:
        return None
    axis = nest.rows[0] if nest.rows else None
    written = {target: value for value, target in kernel.into.items()}
    numbers: dict[Value, int] = {}
    walked: list[bool] = []

    def number(value: Value, offset: Index) -> int | None:
        along = axis is not None and offset == Index.of(axis)
        at = numbers.setdefault(written.get(value, value), len(numbers))
        if at == len(walked):
            walked.append(along)
        return at if walked[at] == along and (along or offset == 0) else None

    said = _said([store.body for store in nest.stores], number)
    stores = [number(store.value, store.offset) for store in nest.stores]
    if said is None or None in stores:
        return None
    return Line(kernel, nest, length, (*said, *stores), tuple(numbers), tuple(walked))


def _said(roots: Iterable[Scalar], number: Any) -> list[Any] | None:
    """What the scalars compute, each node by what it does and the places of its operands; None where that is more."""
    places: dict[int, int] = {}
    said: list[Any] = []
    for root in roots:
        for node in walk(root):
            if id(node) not in places:
                own = _own(node, number)
                if own is None:
                    return None
                places[id(node)] = len(said)
                said.append((*own, *(places[id(operand)] for operand in node.operands)))
        said.append(places[id(root)])
    return said


def _own(node: Scalar, number: Any) -> tuple[Any, ...] | None:
    if isinstance(node, Load):
        at = number(node.value, node.value.offset(node.index))
        return None if at is None else ("load", node.dtype, at)
    if isinstance(node, Constant):
        return "constant", node.dtype, repr(node.value)
    if isinstance(node, Operation):
        return "operation", node.dtype, node.name
    return ("guarded", node.dtype) if isinstance(node, Guarded) else None


def axis_of(line: Line) -> Axis | None:
    """What the line is walked along by; None for a single element."""
    return line.nest.rows[0] if line.nest.rows else None
