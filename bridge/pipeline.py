"""The whole compiler on one page: a captured graph in, a program out.

    passes → partition → lower → build → call-outs → program

The one way back is here too. What fails to convert or to build is first built apart from its neighbours and then given
to the next backend, with an event, and the graph is lowered again; each turn leaves less to try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from bridge.backends.eager import Eager
from bridge.backends.inductor import Inductor
from bridge.backends.library import Library
from bridge.backends.triton.backend import Triton
from bridge.backends.tvm import threads
from bridge.backends.tvm.backend import Tvm
from bridge.backends.tvm.build import BuildFailed, Built, build
from bridge.backends.tvm.lower import Lowered, NodeFailed, lower
from bridge.backends.tvm.program import program
from bridge.backends.tvm.replay import replayed
from bridge.ir.backend import Backend
from bridge.ir.call import refused_call
from bridge.ir.compiled import CompiledGraph, Way
from bridge.ir.joint import Graph
from bridge.ir.nodes import op_name
from bridge.ir.provenance import source_line
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.options import Options
from bridge.partition.support import place
from bridge.passes import PASSES
from bridge.runtime.interpreter import rehearsed
from bridge.versions import findings

FALLBACKS: Mapping[str, Callable[[Options, bool], Backend]] = {
    "triton": lambda options, tries: Triton(options.cache, tries),
    "inductor": lambda options, tries: Inductor(),
    "eager": lambda options, tries: Eager(),
}
"""The backends that an order can name, by options and whether they may try what they are asked."""


@dataclass(frozen=True)
class Backends:
    """Who is asked besides TVM. by_choice: before it, in order; fallbacks: after it, in order."""

    by_choice: Sequence[Backend]
    fallbacks: Sequence[Backend]

    def ways(self, placement: Mapping[str, str]) -> dict[str, Way]:
        """Which way each node runs, by its name."""
        known = {"tvm": Way.GENERATED, **{backend.name: Way.LIBRARY for backend in self.by_choice}}
        return {name: known.get(taker, Way.FALLBACK) for name, taker in placement.items()}


def compile_graph(graph: Graph, options: Options, ledger: Ledger) -> CompiledGraph:
    """Make the program of one graph. Every node that does not run in TVM is an event in the ledger."""
    _record_versions(ledger)
    if graph.device.type == "cpu":
        _install_threads(ledger)
    graph, placement, backends = _placed(graph, options, ledger)
    lowered, built = _built(graph, placement, backends, options, ledger)
    compiled = program(lowered, built, _call_outs(graph, placement, backends, ledger), ledger)
    return replayed(compiled, ledger) if _replays(graph, options) else compiled


def _replays(graph: Graph, options: Options) -> bool:
    """Whether the program is to be a CUDA graph: if asked for, and whole steps of training if nothing is said."""
    asked = options.mode == "reduce-overhead" or (options.mode is None and bool(graph.targets))
    return asked and graph.device.type == "cuda"


def plan_graph(graph: Graph, options: Options, ledger: Ledger) -> CompiledGraph:
    """`compile_graph` up to where something is lowered: the graph has its placement, and runs op by op in ATen."""
    _record_versions(ledger)
    graph, placement, backends = _placed(graph, options, ledger, tries=False)
    return rehearsed(graph, backends.ways(placement))


def _placed(
    graph: Graph, options: Options, ledger: Ledger, tries: bool = True
) -> tuple[Graph, dict[str, str], Backends]:
    """The graph after the passes, the backend of each of its nodes, and the backends. tries: compile to find out."""
    for improve in PASSES:
        graph = improve(graph, ledger)
    backends = _backends(options, graph.device.type, tries)
    asked = [Tvm(options.denied, graph.device), *backends.fallbacks]
    return graph, place(graph, asked, ledger, backends.by_choice), backends


def _backends(options: Options, device: str, tries: bool) -> Backends:
    """The target "triton" asks Triton before anybody else."""
    order, library = options.order(device), Library(options.library)
    if options.target != "triton":
        return Backends([library], [FALLBACKS[name](options, tries) for name in order])
    others = [FALLBACKS[name](options, tries) for name in order if name != "triton"]
    return Backends([FALLBACKS["triton"](options, tries), library], others)


def _record_versions(ledger: Ledger) -> None:
    """Say what is wrong with the packages, once a ledger."""
    for problem in findings():
        _record_once(ledger, Event(DeadEnd.API_INSTABILITY, problem.package, problem.detail, kind="version"))


def _install_threads(ledger: Ledger) -> None:
    """Put kernels on torch's threads, or say why not, once a ledger."""
    refused = threads.install()
    if refused is not None:
        _record_once(ledger, Event(DeadEnd.MAINTENANCE, op="threads", detail=refused, kind="thread pool"))


def _record_once(ledger: Ledger, event: Event) -> None:
    if event not in ledger.events:
        ledger.record(event)


def _built(
    graph: Graph, placement: dict[str, str], backends: Backends, options: Options, ledger: Ledger
) -> tuple[Lowered, Built]:
    """Lower and build until nothing fails. A kernel that fails is split into its nodes, then they are given away."""
    apart: set[str] = set()

    def give_away(names: Sequence[str], detail: str, kind: str) -> None:
        for node in graph.nodes:
            if node.name in names:
                placement[node.name] = next(b.name for b in backends.fallbacks if b.accepts(node) is None)
                ledger.record(_failure(graph, node, detail, kind, placement[node.name], started))

    while True:
        started = time.perf_counter()
        try:
            lowered = lower(graph, backends.ways(placement))
            return lowered, build(lowered, options, apart)
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


def _call_outs(
    graph: Graph, placement: Mapping[str, str], backends: Backends, ledger: Ledger
) -> dict[str, tuple[Callable[..., Any], Mapping[str, int]]]:
    """What runs each node that TVM does not, and what it dispatches. Where a backend fails the next one takes over."""
    made: dict[str, tuple[Callable[..., Any], Mapping[str, int]]] = {}
    order = [*backends.by_choice, *backends.fallbacks]
    for node in graph.nodes:
        taker = placement.get(node.name, "tvm")
        if taker != "tvm":
            first = next(n for n, backend in enumerate(order) if backend.name == taker)
            made[node.name] = _first_built(graph, node, order[first:], ledger)
    return made


def _first_built(
    graph: Graph, node: fx.Node, backends: Sequence[Backend], ledger: Ledger
) -> tuple[Callable[..., Any], Mapping[str, int]]:
    """The node by the first of the backends that can build it; the last is eager, which calls ATen as it is."""
    backend, *others = backends
    started = time.perf_counter()
    try:
        return backend.build(node)
    except Exception as error:  # another compiler's fault costs an event
        rest = [other for other in others if other.accepts(node) is None]
        if not rest:
            raise
        detail = f"{backend.name} failed: {type(error).__name__}: {error}"
        ledger.record(_failure(graph, node, detail, "build failed", rest[0].name, started))
        return _first_built(graph, node, rest, ledger)


def _failure(graph: Graph, node: fx.Node, detail: str, kind: str, taker: str, started: float) -> Event:
    """The event for a node that a compiler could not build and that `taker` runs."""
    return Event(
        DeadEnd.MAINTENANCE,
        op=op_name(node),
        detail=detail,
        kind=kind,
        graph=graph.name,
        phase=graph.phase.value,
        backend=taker,
        seconds=time.perf_counter() - started,
        source=source_line(node),
        node=node.name,
        **refused_call(node),
    )
