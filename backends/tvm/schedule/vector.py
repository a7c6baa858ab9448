"""Choose the axis of a nest that runs in vector lanes, and how many of them."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.backends.tvm.index import Axis
from bridge.backends.tvm.scalar import Guarded, Operation, walk
from bridge.backends.tvm.schedule.functions import one_at_a_time
from bridge.backends.tvm.schedule.nest import Nest

REGISTER_BYTES = 64
"""Bytes of a value that one step of a vector loop covers: two registers of AVX2, one of AVX-512."""

WIDEST = 256
"""Bytes of a row of results that are reduced together, column after column: what is next to one another in memory is
fetched together."""

TASKS = 8
"""Pieces of the work that are left for the threads to share."""

WIDTHS = {"bool": 1, "bfloat16": 2}


@dataclass(frozen=True)
class Lanes:
    """`axis` is walked `count` elements at a time; a count of 1 is a plain loop."""

    axis: Axis | None
    count: int


def vectorised(nest: Nest, step: int = REGISTER_BYTES) -> tuple[Nest, Lanes]:
    """The nest with its vector axis moved innermost in its group, and the lanes. step: bytes that one covers."""
    axes = [*nest.rows, *nest.cols]
    if not axes:
        return nest, Lanes(None, 1)
    axis = max(axes, key=lambda a: _score(nest, a))
    rows = tuple(sorted(nest.rows, key=lambda a: a is axis))
    cols = tuple(sorted(nest.cols, key=lambda a: a is axis))
    return Nest(rows, cols, nest.reductions, nest.stores), Lanes(axis, _count(nest, axis, step))


def _score(nest: Nest, axis: Axis) -> tuple[int, bool, int]:
    """Contiguous reads and writes are what lanes are for; strided and gathered ones cost a load for each lane."""
    score = 0
    for offset in nest.offsets():
        factor = offset.coefficient(axis)
        if factor is None:
            score -= 3
        elif factor == 1:
            score += 2
        elif factor.terms:
            score -= 3
    extent = axis.extent.constant
    if extent is not None and extent < 4:
        score -= 4
    inner = axis in (nest.cols[-1:] or nest.rows[-1:])
    return score, inner, min(extent or 1 << 20, 1 << 20)


def _count(nest: Nest, axis: Axis, step: int) -> int:
    widest = 1
    for root in nest.scalars:
        for node in walk(root):
            if isinstance(node, Guarded) and node.condition.uses(axis):
                return 1
            if isinstance(node, Operation) and one_at_a_time(node.name, node.dtype):
                return 1
            widest = max(widest, width(node.dtype) if node.dtype else 1)
    lanes = max(step // max(widest, 4), 4)
    extent = axis.extent.constant
    if axis in nest.rows and nest.cols and extent is not None:
        while lanes < WIDEST // widest and extent >= 2 * lanes * TASKS:
            lanes *= 2
    while extent is not None and lanes > extent:
        lanes //= 2
    return lanes if lanes >= 2 else 1


def width(dtype: str) -> int:
    """Bytes of an element."""
    if dtype in WIDTHS:
        return WIDTHS[dtype]
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) // 8 if digits else 8
