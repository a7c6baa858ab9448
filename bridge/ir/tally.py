"""Compiled graphs as the records of a ledger file: how many nodes of each overload run in each way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bridge.ir.compiled import CompiledGraph
from bridge.ir.nodes import op_name
from bridge.ledger import Placement


def tally(graphs: Iterable[CompiledGraph], model: str = "") -> list[Placement]:
    """One record for each graph, phase, overload and way."""
    records: list[Placement] = []
    for compiled in graphs:
        graph = compiled.graph
        ops = {node.name: op_name(node) for node in graph.nodes}
        counts = Counter((ops[name], way) for name, way in compiled.placement.items())
        records += [
            Placement(op, way, nodes, graph.name, graph.phase.value, model)
            for (op, way), nodes in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]
    return records
