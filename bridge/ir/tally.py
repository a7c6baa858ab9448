"""Compiled graphs as the records of a ledger file: how many nodes of each overload run in each way, at what cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from bridge.ir.compiled import CompiledGraph, Way
from bridge.ir.cost import cost
from bridge.ir.nodes import op_name
from bridge.ledger import Placement


def tally(graphs: Iterable[CompiledGraph], model: str = "") -> list[Placement]:
    """One record for each graph, phase, overload and way, with the estimated costs of its nodes together."""
    records: list[Placement] = []
    for compiled in graphs:
        alike: dict[tuple[str, Way], list[fx.Node]] = {}
        for node in compiled.graph.nodes:
            if node.name in compiled.placement:
                alike.setdefault((op_name(node), compiled.placement[node.name]), []).append(node)
        records += [
            _placement(compiled, op, way, nodes, model)
            for (op, way), nodes in sorted(alike.items(), key=lambda item: (-len(item[1]), item[0]))
        ]
    return records


def _placement(compiled: CompiledGraph, op: str, way: Way, nodes: list[fx.Node], model: str) -> Placement:
    costs = [cost(node) for node in nodes]
    return Placement(
        op,
        way,
        len(nodes),
        compiled.graph.name,
        compiled.graph.phase.value,
        model,
        flops=_total([one.flops for one in costs]),
        bytes=_total([one.bytes for one in costs]),
        seconds=_total([compiled.seconds.get(node.name) for node in nodes]),
    )


def _total(values: Sequence[Any]) -> Any:
    """The sum; None if one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
