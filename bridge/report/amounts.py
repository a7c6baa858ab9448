"""How much of a model ran in each way, told in five quantities and by phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bridge.ledger import Placement, Way

COLUMNS = ("forward", "backward", "optimizer", "step", "joint", "inference")
"""The phases of a report, in order; one that a file also names comes after them. A step is the first three in one."""
EVERYWHERE = "all"
"""The column over all phases."""


class Quantity(StrEnum):
    """What is counted. Of an op that runs in two ways, the way that is worse counts."""

    OPS = "distinct ops"
    NODES = "nodes"
    FLOPS = "FLOPs"
    BYTES = "bytes"
    SECONDS = "eager time"


UNITS = {Quantity.BYTES: "B", Quantity.SECONDS: "s"}
_COSTS: Mapping[Quantity, Callable[[Placement], float | None]] = {
    Quantity.FLOPS: lambda placement: placement.flops,
    Quantity.BYTES: lambda placement: placement.bytes,
    Quantity.SECONDS: lambda placement: placement.seconds,
}
_FROM_WORST = (Way.UNCAPTURED, Way.FALLBACK, Way.LIBRARY, Way.GENERATED)


@dataclass(frozen=True)
class Cell:
    """One quantity in one phase. ways: None where nobody knows. unknown: captured nodes that are not counted in."""

    ways: Mapping[Way, float | None]
    unknown: int = 0

    @property
    def total(self) -> float:
        """Over all ways of which the number is known."""
        return sum(value or 0 for value in self.ways.values())

    @property
    def known(self) -> bool:
        """Whether anything at all was counted."""
        return any(value is not None for way, value in self.ways.items() if way is not Way.UNCAPTURED)

    def share(self, way: Way) -> float:
        """Percentage of what is known."""
        return 100 * (self.ways[way] or 0) / self.total if self.total else 0.0


Amounts = Mapping[Quantity, Mapping[str, Cell]]
"""By quantity and by phase, with "all" at the end."""


def amounts(placements: Iterable[Placement]) -> Amounts:
    """Every quantity in every phase that the placements name, and in all of them."""
    placements = tuple(placements)
    named = dict.fromkeys(placement.phase for placement in placements)
    phases = [*(name for name in COLUMNS if name in named), *(name for name in named if name not in COLUMNS)]
    columns = {phase: [one for one in placements if one.phase == phase] for phase in phases}
    columns[EVERYWHERE] = list(placements)
    return {
        quantity: {name: _cell(quantity, column) for name, column in columns.items()} if placements else {}
        for quantity in Quantity
    }


def _cell(quantity: Quantity, column: Sequence[Placement]) -> Cell:
    if quantity is Quantity.OPS:
        return _ops(column)
    if quantity is Quantity.NODES:
        return Cell({way: sum(one.nodes for one in column if one.way is way) for way in Way})
    return _cost(_COSTS[quantity], column)


def _ops(column: Sequence[Placement]) -> Cell:
    ways: dict[str, Way] = {}
    for one in column:
        ways[one.op] = min(one.way, ways.get(one.op, one.way), key=_FROM_WORST.index)
    return Cell({way: sum(found is way for found in ways.values()) for way in Way})


def _cost(of: Callable[[Placement], float | None], column: Sequence[Placement]) -> Cell:
    """A sum over what is known. What no graph holds has no cost that anybody knows."""
    captured = [one for one in column if one.way is not Way.UNCAPTURED]
    unknown = sum(one.nodes for one in captured if of(one) is None)
    if captured and all(of(one) is None for one in captured):
        return Cell(dict.fromkeys(Way), unknown)
    ways: dict[Way, float | None] = {way: sum(of(one) or 0 for one in captured if one.way is way) for way in Way}
    if len(captured) < len(column):
        ways[Way.UNCAPTURED] = None
    return Cell(ways, unknown)
