"""The whole compiler on one page: a captured graph in, a program out.

    passes → partition → lower → build → call-outs → program

What stands between the passes and the call-outs is in `generation.py`, and is spared where an equal graph went this way
before: `backends/tvm/kept.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from bridge.backends.eager import Eager
from bridge.backends.inductor import Inductor
from bridge.backends.library import Library
from bridge.backends.triton.backend import Triton
from bridge.backends.tvm import threads
from bridge.backends.tvm.built import WORKER, Built
from bridge.backends.tvm.kept import find, key_of
from bridge.backends.tvm.loading import load_core, load_rest
from bridge.backends.tvm.lowered import Plan
from bridge.backends.tvm.program import program
from bridge.backends.tvm.replay import replayed
from bridge.ir.backend import Backend
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Graph
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.options import Options
from bridge.partition.support import Backends, failure_event
from bridge.passes import PASSES, WITHOUT_LIBRARY
from bridge.runtime.interpreter import rehearsed
from bridge.runtime.worker import shared
from bridge.versions import findings

FALLBACKS: Mapping[str, Callable[[Options, bool], Backend]] = {
    "triton": lambda options, tries: Triton(options.cache, tries),
    "inductor": lambda options, tries: Inductor(),
    "eager": lambda options, tries: Eager(),
}
"""The backends that an order can name, by options and whether they may try what they are asked."""


def compile_graph(graph: Graph, options: Options, ledger: Ledger) -> CompiledGraph:
    """Make the program of one graph. Every node that does not run in TVM is an event in the ledger."""
    try:
        return _compiled(graph, options, ledger)
    finally:
        load_rest()


def _compiled(graph: Graph, options: Options, ledger: Ledger) -> CompiledGraph:
    _record_versions(ledger)
    if graph.device.type == "cpu":
        _install_threads(ledger)
    graph = _improved(graph, options, ledger)
    backends = _backends(options, graph.device.type, tries=True)
    plan, built, placement = _planned(graph, backends, options, ledger)
    compiled = program(plan, built, _call_outs(graph, placement, backends, ledger), ledger)
    return replayed(compiled, ledger) if _replays(graph, options) else compiled


def _planned(
    graph: Graph, backends: Backends, options: Options, ledger: Ledger
) -> tuple[Plan, Built, Mapping[str, str]]:
    """What the program is written by, its kernels, and the backend of each node: as it was kept, or made, and kept."""
    key = key_of(graph, options)
    found = find(key, graph) if key else None
    if found is not None:
        for event in found.events:
            ledger.record(event)
        return found.plan, found.built, found.placement
    if key or not options.cache:  # else a library may be found by what the graph is lowered to
        shared(WORKER).start()
    if graph.device.type == "cpu":
        load_core()
    from bridge.generation import generated  # which loads TVM's compiler, as the worker does meanwhile

    return generated(graph, backends, options, ledger, key)


def _replays(graph: Graph, options: Options) -> bool:
    """Whether the program is to be a CUDA graph: if asked for, and whole steps of training if nothing is said."""
    asked = options.mode == "reduce-overhead" or (options.mode is None and bool(graph.targets))
    return asked and graph.device.type == "cuda"


def plan_graph(graph: Graph, options: Options, ledger: Ledger) -> CompiledGraph:
    """`compile_graph` up to where something is lowered: the graph has its placement, and runs op by op in ATen."""
    _record_versions(ledger)
    from bridge.generation import placed

    graph = _improved(graph, options, ledger)
    backends = _backends(options, graph.device.type, tries=False)
    return rehearsed(graph, backends.ways(placed(graph, backends, options, ledger)))


def _improved(graph: Graph, options: Options, ledger: Ledger) -> Graph:
    """The graph after the passes."""
    for improve in PASSES if options.library else WITHOUT_LIBRARY:
        graph = improve(graph, ledger)
    return graph


def _backends(options: Options, device: str, tries: bool) -> Backends:
    """Who is asked. tries: compile to find out. The target "triton" asks Triton before anybody else."""
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
        ledger.record(failure_event(graph, node, detail, "build failed", rest[0].name, started))
        return _first_built(graph, node, rest, ledger)
