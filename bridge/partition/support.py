"""Give every computing node of a graph a backend, and record each refusal of the first one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from bridge.ir.backend import Asked, Refusal
from bridge.ir.call import refused_call
from bridge.ir.joint import Graph
from bridge.ir.nodes import computes, op_name
from bridge.ir.provenance import source_line
from bridge.ledger import Event, Ledger


def place(graph: Graph, backends: Sequence[Asked], ledger: Ledger, library: Asked | None = None) -> dict[str, str]:
    """The name of the backend that takes each computing node, by the node's name.

    The backends are asked in order and the first that accepts takes the node. That the first of them refuses is a
    dead end: one event. What `library` accepts goes there by choice, before anybody is asked, without an event.
    """
    placement: dict[str, str] = {}
    for node in graph.nodes:
        if not computes(node):
            continue
        if library is not None and library.accepts(node) is None:
            placement[node.name] = library.name
            continue
        taker, refusal = _ask(node, backends)
        if refusal is not None:
            ledger.record(refusal_event(graph, node, refusal, taker))
        placement[node.name] = taker
    return placement


def refusal_event(graph: Graph, node: fx.Node, refusal: Refusal, taker: str) -> Event:
    """The event for a node that went to `taker` because of `refusal`."""
    return Event(
        dead_end=refusal.dead_end,
        op=op_name(node),
        detail=refusal.detail,
        kind=refusal.kind,
        graph=graph.name,
        phase=graph.phase.value,
        backend=taker,
        source=source_line(node),
        node=node.name,
        **refused_call(node),
    )


def _ask(node: fx.Node, backends: Sequence[Asked]) -> tuple[str, Refusal | None]:
    """Who takes the node, and why the first of the backends did not."""
    first: Refusal | None = None
    for position, backend in enumerate(backends):
        refusal = backend.accepts(node)
        if refusal is None:
            return backend.name, first
        if position == 0:
            first = refusal
    names = ", ".join(backend.name for backend in backends)
    raise ValueError(f"none of the backends ({names}) takes {op_name(node)} at {source_line(node)}; end with eager")
