"""Run a captured graph as it is, op by op in ATen: the target "eager", and the way out when compiling fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.ir.callout import callout
from bridge.ir.compiled import CallOut, CompiledGraph, Way
from bridge.ir.joint import Graph
from bridge.ir.nodes import computes
from bridge.ir.provenance import source_line


def interpreted(graph: Graph) -> CompiledGraph:
    """The graph as the Python that fx writes for it: every computing node is a call to ATen."""
    nodes = [node for node in graph.nodes if computes(node)]
    module, runs = graph.module, [0]

    def run(args: list[Any]) -> Sequence[Any]:
        values = tuple(args)
        args.clear()
        runs[0] += 1
        return module(*values)

    return CompiledGraph(
        graph=graph,
        placement={node.name: Way.FALLBACK for node in nodes},
        run=run,
        source=module.code,
        kernel_calls=0,
        callouts=tuple(CallOut(node.name, Way.FALLBACK, callout(node)[1], source_line(node)) for node in nodes),
        runs=runs,
    )
