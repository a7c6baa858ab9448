"""What a ledger file holds besides events: how the nodes ran, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bridge.ledger.event import Event


class Way(StrEnum):
    """The four ways in which a node can run."""

    GENERATED = "generated"
    LIBRARY = "library"
    FALLBACK = "fallback"
    UNCAPTURED = "uncaptured"


@dataclass(frozen=True)
class Placement:
    """How many nodes of one overload run in one way in one graph.

    op: the ATen overload. graph, phase, model: as in `Event`.
    """

    op: str
    way: Way
    nodes: int
    graph: str = ""
    phase: str = ""
    model: str = ""


@dataclass(frozen=True)
class Measure:
    """One measured quantity: a number, repeated readings of it, or a curve over the steps of a training.

    name: what was measured ("loss", "step", "first call", "test accuracy"). unit: "s", "%" or "" for a plain number.
    target: what ran the model ("eager", "tvm", "inductor").
    """

    name: str
    values: tuple[float, ...]
    unit: str = ""
    target: str = ""
    model: str = ""


Record = Event | Placement | Measure
