"""What a ledger file holds besides events: how nodes ran, what was measured, what others have, what calls came to."""

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
    flops, bytes: estimates for all these nodes together, as `bridge/ir/cost.py` makes them. seconds: what they took as
    calls of ATen, where a run measured it. None: not known.
    """

    op: str
    way: Way
    nodes: int
    graph: str = ""
    phase: str = ""
    model: str = ""
    flops: int | None = None
    bytes: int | None = None
    seconds: float | None = None


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


@dataclass(frozen=True)
class PeerAnswer:
    """Whether another compiler has an overload by name, which says nothing of the calls that it takes.

    peer: who was asked. op: the ATen overload, "" where the peer could not be asked. detail: its version, or why not.
    """

    peer: str
    op: str
    has: bool
    detail: str = ""
    model: str = ""


class End(StrEnum):
    """What can become of a call that an importer is given."""

    RIGHT = "right"
    REFUSED = "refused"
    RAISED = "raised"
    WRONG = "wrong"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Trial:
    """What became of calls of one overload that were given to an importer, those of one type, variant and end.

    op: the ATen overload. importer: who converted them ("bridge", "tvm"). end: "refused" where it said that it does not
    take them. dtype: the type that they are in, "float32". variant: what was changed of torch's own samples.
    detail: the reason, or what is wrong with the first of them.
    """

    op: str
    importer: str
    end: End
    calls: int
    dtype: str = ""
    variant: str = ""
    detail: str = ""
    model: str = ""


Record = Event | Placement | Measure | PeerAnswer | Trial
