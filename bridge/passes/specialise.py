"""A graph with symbolic sizes as it is for given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch import fx
from torch.fx.node import map_aggregate

from bridge.ir.joint import Graph, rewritten
from bridge.ir.shapes import SYMBOLIC


def specialised(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The same graph with numbers for its symbols: the same inputs and results, no size of which is open."""

    def number(value: Any) -> Any:
        if not isinstance(value, SYMBOLIC):
            return value
        expr: Any = value.node.expr
        known = expr.xreplace({s: sympy.Integer(sizes[str(s)]) for s in expr.free_symbols if str(s) in sizes})
        kind: Any = bool if isinstance(value, torch.SymBool) else int if isinstance(value, torch.SymInt) else float
        return kind(known)

    def with_numbers(nodes: fx.Graph) -> None:
        for node in nodes.nodes:
            node.args = map_aggregate(node.args, number)
            node.kwargs = map_aggregate(node.kwargs, number)
            if "val" in node.meta:
                node.meta["val"] = map_aggregate(node.meta["val"], lambda value: _settled(number(value), number))

    at = ", ".join(f"{name}={size}" for name, size in sorted(sizes.items()))
    return replace(graph, name=f"{graph.name} at {at}", module=rewritten(graph, with_numbers).module)


def _settled(value: Any, number: Any) -> Any:
    """A fake tensor that lies as another one does for given sizes; itself where nothing of it is open."""
    if not isinstance(value, torch.Tensor):
        return value
    described = (*value.shape, *value.stride(), value.storage_offset())
    if not any(isinstance(one, SYMBOLIC) for one in described):
        return value
    sizes, strides = [number(n) for n in value.shape], [number(n) for n in value.stride()]
    offset = number(value.storage_offset())
    reach = offset + 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) if all(sizes) else offset
    with value.fake_mode:  # type: ignore[attr-defined]
        memory = torch.empty(reach, dtype=value.dtype, device=value.device)
        return memory.as_strided(sizes, strides, offset)
