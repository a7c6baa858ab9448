"""The whole compiler on one page: a captured graph in, a program out.

    passes → partition → lower → build → program

The one way back is here too. What fails to convert or to build is first built apart from its neighbours and then given
to the next backend, with an event, and the graph is lowered again; each turn leaves less to try.
"""

from __future__ import annotations

import time

from bridge.backends.eager import Eager
from bridge.backends.library import Library
from bridge.backends.tvm import threads
from bridge.backends.tvm.backend import Tvm
from bridge.backends.tvm.build import BuildFailed, Built, build
from bridge.backends.tvm.lower import Lowered, NodeFailed, lower
from bridge.backends.tvm.program import program
from bridge.ir.compiled import CompiledGraph, Way
from bridge.ir.joint import Graph
from bridge.ir.nodes import op_name, shapes_and_dtypes
from bridge.ir.provenance import source_line
from bridge.ir.shapes import tensors_of
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.options import Options
from bridge.partition.support import place
from bridge.passes import PASSES
from bridge.versions import findings

WAYS = {"tvm": Way.GENERATED, "library": Way.LIBRARY}


def compile_graph(graph: Graph, options: Options, ledger: Ledger) -> CompiledGraph:
    """Make the program of one graph. Every node that does not run in TVM is an event in the ledger."""
    _record_installation(ledger)
    for improve in PASSES:
        graph = improve(graph, ledger)
    backends = [Tvm(options.denied), Eager()]
    placement = place(graph, backends, ledger, Library(options.library))
    ways = {name: WAYS.get(backend, Way.FALLBACK) for name, backend in placement.items()}
    lowered, built = _built(graph, ways, options, ledger)
    return program(lowered, built, ledger)


def _record_installation(ledger: Ledger) -> None:
    """Put kernels on torch's threads, or say why not; say what is wrong with the packages. Each once a ledger."""
    found = [Event(DeadEnd.API_INSTABILITY, problem.package, problem.detail, kind="version") for problem in findings()]
    refused = threads.install()
    if refused is not None:
        found.append(Event(DeadEnd.MAINTENANCE, op="threads", detail=refused, kind="thread pool"))
    for event in found:
        if event not in ledger.events:
            ledger.record(event)


def _built(graph: Graph, ways: dict[str, Way], options: Options, ledger: Ledger) -> tuple[Lowered, Built]:
    """Lower and build until nothing fails. A kernel that fails is split into its nodes, then they are given away."""
    apart: set[str] = set()
    while True:
        started = time.perf_counter()
        try:
            lowered = lower(graph, ways)
            return lowered, build(lowered, options, apart)
        except NodeFailed as failed:
            _give_away(graph, [failed.node.name], f"a row failed: {failed.reason}", "row failed", started, ways, ledger)
        except BuildFailed as failed:
            kind = {"died": "compiler died", "hung": "compiler hung"}.get(failed.kind, "build failed")
            for nodes, detail in _blamed(lowered, options, apart, failed):
                fresh = [n for n in nodes if n not in apart]
                if fresh and len(nodes) > 1:
                    apart.update(fresh)
                else:
                    _give_away(graph, nodes, detail, kind, started, ways, ledger)


def _blamed(lowered: Lowered, options: Options, apart: set[str], failed: BuildFailed) -> list[tuple[list[str], str]]:
    """The generated nodes that a failed build is due to: those that fail in a careful build, else all of them."""
    groups = failed.groups
    try:
        build(lowered, options, apart, careful=True)
    except BuildFailed as again:
        groups = again.groups
    generated = [n for n, way in lowered.ways.items() if way is Way.GENERATED]
    if not generated:
        raise failed  # nothing is left to give away
    found = [([n for n in nodes if n in generated], detail) for nodes, detail in groups]
    return [(nodes, detail) for nodes, detail in found if nodes] or [(generated, failed.detail)]


def _give_away(
    graph: Graph, names: list[str], detail: str, kind: str, started: float, ways: dict[str, Way], ledger: Ledger
) -> None:
    """Nodes that TVM could not build go to the next backend."""
    by_name = {n.name: n for n in graph.nodes}
    for name in names:
        node = by_name[name]
        shapes, dtypes = shapes_and_dtypes(tensors_of(node))
        ways[name] = Way.FALLBACK
        ledger.record(
            Event(
                DeadEnd.MAINTENANCE,
                op=op_name(node),
                detail=detail,
                kind=kind,
                graph=graph.name,
                phase=graph.phase.value,
                backend="eager",
                shapes=shapes,
                dtypes=dtypes,
                seconds=time.perf_counter() - started,
                source=source_line(node),
                node=name,
            )
        )
