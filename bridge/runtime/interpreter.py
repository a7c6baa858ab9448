"""Run a captured graph as it is, op by op in ATen: for the target "eager", to rehearse, and when compiling fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import fx

from bridge.ir.callout import callout
from bridge.ir.compiled import CallOut, CompiledGraph, Way
from bridge.ir.joint import Graph
from bridge.ir.nodes import computes
from bridge.ir.provenance import source_line
from bridge.ir.shapes import tensors_of


def interpreted(graph: Graph) -> CompiledGraph:
    """The graph as the Python that fx writes for it: every computing node is a call to ATen."""
    nodes = [node for node in graph.nodes if computes(node)]
    module, runs = graph.module, [0]

    def run(args: list[Any]) -> Sequence[Any]:
        values = tuple(args)
        args.clear()
        runs[0] += 1
        return _written(graph, module(*values), values)

    return CompiledGraph(
        graph=graph,
        placement={node.name: Way.FALLBACK for node in nodes},
        run=run,
        source=module.code,
        kernel_calls=0,
        callouts=tuple(CallOut(node.name, Way.FALLBACK, callout(node)[1], source_line(node)) for node in nodes),
        runs=runs,
    )


def rehearsed(graph: Graph, placement: Mapping[str, Way]) -> CompiledGraph:
    """The graph with the placement that it would be compiled with. It runs in ATen, and times each node."""
    plain = interpreted(graph)
    timer = _Timer(graph.module)

    def run(args: list[Any]) -> Sequence[Any]:
        values = tuple(args)
        args.clear()
        plain.runs[0] += 1
        with torch.no_grad():
            return _written(graph, timer.run(*values), values)

    return replace(plain, placement=dict(placement), run=run, seconds=timer.seconds)


def _written(graph: Graph, results: Sequence[Any], values: Sequence[Any]) -> Sequence[Any]:
    """What is returned of the results, after the others were written into the inputs that they are for."""
    if not graph.targets:
        return results
    with torch.no_grad():
        for result, at in zip(results, graph.targets, strict=True):
            if at is not None:
                values[at].copy_(result)
    return [result for result, at in zip(results, graph.targets, strict=True) if at is None]


class _Timer(fx.Interpreter):
    """Keeps the seconds of each node of which every tensor is on the CPU: elsewhere a call is over before its work."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.seconds: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        start = perf_counter()
        result = super().run_node(n)
        took = perf_counter() - start
        if computes(n) and all(tensor.device.type == "cpu" for tensor in tensors_of(n)):
            self.seconds[n.name] = took
        return result
