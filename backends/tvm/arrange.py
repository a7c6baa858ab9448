"""Lay out what lies in memory between kernels as that lies which it is computed from.

Only the edge contract says how a value has to lie, and it says so of what is handed to others. All else is read by the
program's own kernels, which want neighbours of one value beside neighbours of another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bridge.backends.tvm.index import Axis, Index
from bridge.backends.tvm.loops import Computation, Step, Value
from bridge.backends.tvm.scalar import Load, walk
from bridge.backends.tvm.schedule.vector import width

LEAST = 1 << 12
"""Elements from which on it matters how a value lies."""

SMALLER = 8
"""How many times smaller a value is at most to have a say."""

Order = tuple[int, ...]
"""Dimensions, the outermost first."""


def arrange(steps: Sequence[Step], fixed: Collection[Value]) -> None:
    """Set the strides of what is computed, in program order, but for the values that are fixed."""
    for step in steps:
        if isinstance(step, Computation) and step.out not in fixed and step.out.compact:
            order = _order(step)
            if order is not None:
                step.out.strides = _packed(step.out.shape, order)


def _order(step: Computation) -> Order | None:
    """How most bytes of what is read lie, where another dimension than the last one is innermost there."""
    sizes = [size.constant for size in step.out.shape]
    if any(size is None for size in sizes) or (step.out.numel.constant or 0) < LEAST:
        return None
    dims = [dim for dim, size in enumerate(sizes) if size != 1]
    votes: dict[int, int] = {}
    orders: dict[int, Order] = {}
    for load in dict.fromkeys(node for node in walk(step.body) if isinstance(node, Load)):
        known = [_step(load, step.axes[dim]) for dim in dims]
        if (load.value.numel.constant or 0) * SMALLER < (step.out.numel.constant or 0) or not all(known):
            continue
        steps = {dim: distance or 0 for dim, distance in zip(dims, known, strict=True)}
        order = tuple(sorted(range(len(sizes)), key=lambda dim: -steps.get(dim, 1 << 62)))
        votes[order[-1]] = votes.get(order[-1], 0) + (load.value.numel.constant or 0) * width(load.dtype)
        orders.setdefault(order[-1], order)
    if not votes:
        return None
    innermost = max(votes, key=votes.__getitem__)
    return None if innermost == dims[-1] else orders[innermost]


def _step(load: Load, axis: Axis) -> int | None:
    """The distance in memory from one element to another along an axis, as far as indices say; None for unknown."""
    used = [
        stride.constant
        for index, size, stride in zip(load.index, load.value.shape, load.value.strides, strict=True)
        if size != 1 and index.uses(axis)
    ]
    return None if not used or None in used else min(filter(None, used), default=None)


def _packed(shape: Sequence[Index], order: Order) -> tuple[Index, ...]:
    strides, step = [Index.of(1)] * len(shape), Index.of(1)
    for dim in reversed(order):
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)
