"""Give every computing node of a graph a backend, and record each refusal of the first one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from bridge.ir.backend import Asked, Backend, Refusal
from bridge.ir.call import refused_call
from bridge.ir.compiled import Way
from bridge.ir.joint import Graph
from bridge.ir.nodes import computes, op_name
from bridge.ir.provenance import source_line
from bridge.ledger import DeadEnd, Event, Ledger

FOUND_OUT = ("slower", "build failed")
"""The kinds of refusal by which a backend tells what it found out by trying; anybody's is worth telling."""


@dataclass(frozen=True)
class Backends:
    """Who is asked besides TVM. by_choice: before it, in order; fallbacks: after it, in order."""

    by_choice: Sequence[Backend]
    fallbacks: Sequence[Backend]

    def ways(self, placement: Mapping[str, str]) -> dict[str, Way]:
        """Which way each node runs, by its name."""
        known = {"tvm": Way.GENERATED, **{backend.name: Way.LIBRARY for backend in self.by_choice}}
        return {name: known.get(taker, Way.FALLBACK) for name, taker in placement.items()}


def place(graph: Graph, backends: Sequence[Asked], ledger: Ledger, by_choice: Sequence[Asked] = ()) -> dict[str, str]:
    """The name of the backend that takes each computing node, by the node's name.

    The backends are asked in order and the first that accepts takes the node. That the first of them refuses is a
    dead end: one event. What one of `by_choice` accepts goes there before anybody is asked; that is no dead end.
    """
    placement: dict[str, str] = {}
    for node in graph.nodes:
        if not computes(node):
            continue
        taker, refusals = _taker(node, by_choice)
        reasons = [refusal for refusal in refusals if refusal.kind == "build failed"]
        if taker is None:
            taker, refusals = _taker(node, backends)
            reasons += _told(refusals)
        if taker is None:
            names = ", ".join(backend.name for backend in backends)
            raise ValueError(
                f"none of the backends ({names}) takes {op_name(node)} at {source_line(node)}; end with eager"
            )
        for reason in reasons:
            ledger.record(refusal_event(graph, node, reason, taker))
        placement[node.name] = taker
    return placement


def _taker(node: fx.Node, backends: Sequence[Asked]) -> tuple[str | None, list[Refusal]]:
    """The first that takes the node, and why those before it do not."""
    refusals: list[Refusal] = []
    for backend in backends:
        refusal = backend.accepts(node)
        if refusal is None:
            return backend.name, refusals
        refusals.append(refusal)
    return None, refusals


def _told(refusals: Sequence[Refusal]) -> list[Refusal]:
    """Why the first of the backends did not take a node, with what others found out when they tried."""
    if not refusals:
        return []
    first, *others = refusals
    return [replace(first, detail="; ".join([first.detail, *(r.detail for r in others if r.kind in FOUND_OUT)]))]


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


def failure_event(graph: Graph, node: fx.Node, detail: str, kind: str, taker: str, started: float) -> Event:
    """The event for a node that a compiler could not build and that `taker` runs. started: by `perf_counter`."""
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
