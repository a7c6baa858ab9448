"""Walk a nest in tiles where one side is read along one axis and the other written along another, as in a transpose.

Row after row, each element read would be the only one of its cache line; within a tile the lines are read whole.
"""

from __future__ import annotations

from bridge.backends.tvm.index import Axis, Index
from bridge.backends.tvm.schedule.nest import Nest
from bridge.backends.tvm.schedule.vector import Lanes

SIDES = (16, 32, 8)
"""Lengths of a tile's side across the lanes, the best first; one has to divide the axis."""


def tiled(nest: Nest, lanes: Lanes) -> Nest:
    """The nest with a second axis split, its inner part inside of the lanes. Reductions have their own order."""
    across = _across(nest, lanes)
    if across is None:
        return nest
    axis, side = across
    outer = Axis(f"{axis.name}o", axis.extent // side)
    inner = Axis(f"{axis.name}i", Index.of(side))
    rows = [outer if a is axis else a for a in nest.rows]
    into = {axis: Index.of(outer) * side + Index.of(inner)}
    return nest.rewritten(into, [*rows, inner], nest.cols)


def _across(nest: Nest, lanes: Lanes) -> tuple[Axis, int] | None:
    """The axis along which something is contiguous that the lanes stride over, and the side of its tiles."""
    if nest.cols or lanes.axis is None or lanes.count == 1 or (lanes.axis.extent.constant or 0) < SIDES[-1]:
        return None
    for axis in nest.rows:
        extent = axis.extent.constant or 0
        side = next((s for s in SIDES if extent >= 2 * s and extent % s == 0), None)
        if axis is not lanes.axis and side and any(_turned(offset, axis, lanes.axis) for offset in nest.offsets()):
            return axis, side
    return None


def _turned(offset: Index, axis: Axis, lanes: Axis) -> bool:
    along, over = offset.coefficient(axis), offset.coefficient(lanes)
    return along == 1 and over is not None and (over.constant or 0) > 1
