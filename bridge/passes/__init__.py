"""Graph → graph. Each pass leaves what it is given as it was."""

from __future__ import annotations

from collections.abc import Callable

from bridge.ir.joint import Graph
from bridge.ledger import Ledger
from bridge.passes.canonicalise import canonicalise

Pass = Callable[[Graph, Ledger], Graph]

PASSES: tuple[Pass, ...] = (canonicalise,)
"""Every pass over a graph that is about to be lowered, in order."""


def run_passes(graph: Graph, ledger: Ledger) -> Graph:
    """The graph after every pass."""
    for step in PASSES:
        graph = step(graph, ledger)
    return graph
