"""Placing, lowering and building a graph: what the cache spares whoever compiles an equal graph again.

The one way back is here. What fails to convert or to build is first built apart from its neighbours and then given to
the next backend, with an event, and the graph is lowered again; each turn leaves less to try.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bridge.backends.tvm.backend import Tvm
from bridge.backends.tvm.build import BuildFailed, Built, build
from bridge.backends.tvm.kept import entry
from bridge.backends.tvm.lower import NodeFailed, lower
from bridge.backends.tvm.lowered import Lowered
from bridge.ir.compiled import Way
from bridge.ir.joint import Graph
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.options import Options
from bridge.partition.support import Backends, failure_event, place


def placed(graph: Graph, backends: Backends, options: Options, ledger: Ledger) -> dict[str, str]:
    """The backend of each node, by its name."""
    asked = [Tvm(options.denied, graph.device), *backends.fallbacks]
    return place(graph, asked, ledger, backends.by_choice)


def generated(
    graph: Graph, backends: Backends, options: Options, ledger: Ledger, key: str | None
) -> tuple[Lowered, Built, dict[str, str]]:
    """Place, then lower and build until nothing fails. key: by which it is kept, unless something failed.

    A kernel that fails is split into its nodes, then they are given away.
    """
    known = len(ledger.events)
    placement = placed(graph, backends, options, ledger)
    apart: set[str] = set()

    def give_away(names: Sequence[str], detail: str, kind: str) -> None:
        for node in graph.nodes:
            if node.name in names:
                placement[node.name] = next(b.name for b in backends.fallbacks if b.accepts(node) is None)
                ledger.record(failure_event(graph, node, detail, kind, placement[node.name], started))

    while True:
        started = time.perf_counter()
        try:
            lowered = lower(graph, backends.ways(placement))
            kept = None if apart else entry(key, lowered, placement, ledger.events[known:])
            built = build(lowered, options, apart, entry=kept)
            if built.untuned:
                ledger.record(_untuned(graph, built.untuned, started))
            return lowered, built, placement
        except NodeFailed as failed:
            give_away([failed.node.name], f"a row failed: {failed.reason}", "row failed")
        except BuildFailed as failed:
            kind = {"died": "compiler died", "hung": "compiler hung"}.get(failed.kind, "build failed")
            for nodes, detail in _blamed(lowered, options, apart, failed):
                fresh = [n for n in nodes if n not in apart]
                if fresh and len(nodes) > 1:
                    apart.update(fresh)
                else:
                    give_away(nodes, detail, kind)


def _untuned(graph: Graph, reason: str, started: float) -> Event:
    """The event for a search for better kernels that failed: those by rules are called."""
    return Event(
        DeadEnd.MAINTENANCE,
        "tune",
        reason,
        kind="search failed",
        graph=graph.name,
        phase=graph.phase.value,
        backend="tvm",
        seconds=time.perf_counter() - started,
    )


def _blamed(lowered: Lowered, options: Options, apart: set[str], failed: BuildFailed) -> list[tuple[list[str], str]]:
    """The generated nodes that a failed build is due to: those that fail in a careful build, else all of them."""
    groups = failed.groups
    try:
        build(lowered, options, apart, careful=True)
    except BuildFailed as again:
        groups = again.groups
    ours = [n for n, way in lowered.ways.items() if way is Way.GENERATED]
    if not ours:
        raise failed  # nothing is left to give away
    found = [([n for n in nodes if n in ours], detail) for nodes, detail in groups]
    return [(nodes, detail) for nodes, detail in found if nodes] or [(ours, failed.detail)]
