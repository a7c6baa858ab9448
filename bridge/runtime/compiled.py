"""What `bridge.compile` keeps of one compilation: its graphs, its ledger, and how its nodes run."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.ir.compiled import CompiledGraph, Tuned, Way
from bridge.ir.joint import JointGraph, Phase
from bridge.ir.tally import tally
from bridge.ledger import Ledger, Measure, Record
from bridge.options import Options

if TYPE_CHECKING:
    from rich.console import Console

LIVE: weakref.WeakSet[Compilation] = weakref.WeakSet()
"""Every compilation that somebody still holds. An audit reads the counters of all: a step may call several."""


@dataclass(frozen=True, eq=False, repr=False)
class Compilation:
    """One use of `bridge.compile`, which fills as graphs are captured: at the first call, and when torch's guards fail.

    graphs: what was compiled, forward and backward apart. joints: the joint graphs before they were split.
    """

    options: Options
    ledger: Ledger
    graphs: list[CompiledGraph] = field(default_factory=list)
    joints: list[JointGraph] = field(default_factory=list)

    def __post_init__(self) -> None:
        LIVE.add(self)

    def __repr__(self) -> str:
        return f"<compilation for {self.options.target}: {len(self.graphs)} graphs, {self.placement}, {self.ledger!r}>"

    @property
    def placement(self) -> dict[str, dict[str, int]]:
        """How many nodes of all graphs run in each way: {"forward": {"generated": 12, "library": 3, …}, "backward": …}.

        "uncaptured" counts the places that torch left out of every graph; how many ops ran there, an audit tells.
        """
        counts: dict[str, Counter[str]] = {}
        for compiled in self.graphs:
            ways = (way.value for way in compiled.placement.values())
            counts.setdefault(compiled.graph.phase.value, Counter()).update(ways)
        for event in self.ledger.select(kind="uncaptured"):
            phase = event.phase or Phase.FORWARD.value
            counts.setdefault(phase, Counter())[Way.UNCAPTURED.value] += event.count
        return {phase: {way.value: ways[way.value] for way in Way} for phase, ways in counts.items()}

    def records(self, model: str = "") -> list[Record]:
        """How the nodes of each overload run, and the events, as a ledger file holds them under a model's name."""
        events = [replace(event, model=model) for event in self.ledger]
        return [*tally(self.graphs, model), *events, *self._measures(model)]

    def _measures(self, model: str) -> list[Measure]:
        """Of each kernel that was searched for: by rules, and the best that was found."""
        tuned = [one for one in self.tuned if one.found]
        return [
            Measure(name, (seconds,), "s", one.kernel, model)
            for one in tuned
            for name, seconds in (("kernel by rules", one.ours), ("kernel found", one.found))
        ]

    @property
    def tuned(self) -> tuple[Tuned, ...]:
        """What searches for schedules came to, kernel by kernel."""
        return tuple(one for graph in self.graphs for one in graph.tuned)

    def explain(self, console: Console | None = None) -> None:
        """Print how the nodes run and why some do not run in TVM, with the lines that asked for them."""
        from bridge.runtime.explain import explain

        explain(self, console)
