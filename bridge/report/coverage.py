"""Coverage: in which of the four ways the nodes of a model ran, and which dead ends it met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.ledger import DeadEnd, Event, Placement, Way
from bridge.report.amounts import Amounts, amounts
from bridge.report.repro import repro

Ways = Mapping[Way, int]
"""How many nodes ran in each way, all four ways named."""

UNCAPTURED, STEP_OUTSIDE = "uncaptured", "step outside"
"""The kinds of the events for what is in no graph: a place that torch left out, and an optimizer behind a program."""

RAISED, TIMED_OUT, WRONG = "raised", "timed out", "wrong result"
FAILED = (RAISED, TIMED_OUT, WRONG)
"""The kinds of the events that say that a model as a whole did not come through."""

DEAD_END_TITLES = {
    DeadEnd.COVERAGE: "coverage",
    DeadEnd.DYNAMIC_SHAPE: "dynamic shape",
    DeadEnd.API_INSTABILITY: "API instability",
    DeadEnd.INPLACE_OPTIMIZER: "in-place optimizer",
    DeadEnd.MAINTENANCE: "maintenance",
}


@dataclass(frozen=True)
class Reason:
    """Events that are alike: one op, met for one reason, taken by one backend.

    sources: the user's lines, each once. phases, models: in which it was met. program: what shows one of them, where
    there can be one.
    """

    dead_end: DeadEnd
    kind: str
    op: str
    detail: str
    backend: str
    count: int
    phases: tuple[str, ...]
    sources: tuple[str, ...]
    models: tuple[str, ...] = ()
    program: str | None = None


@dataclass(frozen=True)
class Coverage:
    """How a model's nodes ran: by phase and by op, and why some did not run in TVM, the commonest reason first.

    failures: why the model as a whole did not come through.
    """

    phases: Mapping[str, Ways]
    ops: Mapping[str, Ways]
    dead_ends: Mapping[DeadEnd, int]
    reasons: tuple[Reason, ...]
    amounts: Amounts
    failures: tuple[str, ...] = ()

    @property
    def total(self) -> Ways:
        """Nodes in each way, over all phases."""
        return {way: sum(ways[way] for ways in self.phases.values()) for way in Way}

    @property
    def nodes(self) -> int:
        return sum(self.total.values())

    @property
    def lacking(self) -> frozenset[str]:
        """The ops of which a node fell back."""
        return frozenset(op for op, ways in self.ops.items() if ways[Way.FALLBACK])

    @property
    def whole(self) -> bool:
        """Whether nothing fell back, failed, or was left out of every graph."""
        return bool(self.nodes) and not self.blocked and not self.total[Way.FALLBACK]

    @property
    def blocked(self) -> str:
        """Why no op that somebody writes can make the model whole; "" where it can."""
        if self.failures:
            return self.failures[0]
        left_out = self.total[Way.UNCAPTURED]
        return f"{left_out} place{'s' * (left_out > 1)} that torch left out of every graph" if left_out else ""


def share(ways: Ways, way: Way) -> float:
    """Percentage of the nodes that ran in this way; 0 where there are none."""
    nodes = sum(ways.values())
    return 100 * ways[way] / nodes if nodes else 0.0


def coverage(events: Iterable[Event], placements: Iterable[Placement]) -> Coverage:
    """Count what was recorded. What no graph captured has no placement: its events are counted instead."""
    events, placements = tuple(events), tuple(placements)
    dead_ends: Counter[DeadEnd] = Counter()
    for event in events:
        dead_ends[event.dead_end] += event.count
    placements = with_uncaptured(events, placements)
    return Coverage(
        phases=_ways_by((placement.phase, placement) for placement in placements),
        ops=_ways_by((placement.op, placement) for placement in sorted(placements, key=lambda one: one.op)),
        dead_ends={dead_end: dead_ends[dead_end] for dead_end in DeadEnd},
        reasons=_reasons(events),
        amounts=amounts(placements),
        failures=tuple(f"{event.kind}: {event.detail}" for event in events if event.kind in FAILED),
    )


def with_uncaptured(events: Iterable[Event], placements: Iterable[Placement]) -> tuple[Placement, ...]:
    """The placements, and one for each event of what is in no graph."""
    left_out = (
        Placement(event.op, Way.UNCAPTURED, event.count, event.graph, event.phase or "forward", event.model)
        for event in events
        if event.kind in (UNCAPTURED, STEP_OUTSIDE)
    )
    return (*placements, *left_out)


def _ways_by(keyed: Iterable[tuple[str, Placement]]) -> dict[str, Ways]:
    counts: dict[str, Counter[Way]] = {}
    for key, placement in keyed:
        counts.setdefault(key, Counter())[placement.way] += placement.nodes
    return {key: {way: ways[way] for way in Way} for key, ways in counts.items()}


def _reasons(events: tuple[Event, ...]) -> tuple[Reason, ...]:
    alike: dict[tuple[DeadEnd, str, str, str, str], list[Event]] = {}
    for event in events:
        alike.setdefault((event.dead_end, event.kind, event.subject, event.detail, event.backend), []).append(event)
    reasons = [
        Reason(
            *key,
            count=sum(event.count for event in group),
            phases=tuple(dict.fromkeys(event.phase for event in group if event.phase)),
            sources=tuple(dict.fromkeys(event.source for event in group if event.source)),
            models=tuple(dict.fromkeys(event.model for event in group if event.model)),
            program=next((program for event in group if (program := repro(event)) is not None), None),
        )
        for key, group in alike.items()
    ]
    return tuple(sorted(reasons, key=lambda reason: -reason.count))
