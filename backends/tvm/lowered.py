"""What is known of a graph when it is lowered: what its program needs, and what its build needs besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from bridge.backends.tvm.bounds import Check
from bridge.ir.callout import attribute
from bridge.ir.compiled import Way
from bridge.ir.joint import Graph
from bridge.ir.shapes import is_size


@dataclass(frozen=True)
class Plan:
    """A graph, and what its program is written by.

    strides: node → strides as text over the symbolic sizes. ways: how each computing node runs. constants: `get_attr`
    node → its tensor. into: node → the input whose memory is to hold its result. checks: step → the variable that
    tells whether something does not hold, and what.
    """

    graph: Graph
    strides: Mapping[str, tuple[str, ...]]
    ways: Mapping[str, Way]
    constants: Mapping[str, torch.Tensor]
    into: Mapping[str, str]
    checks: Mapping[str, tuple[str, Check]]


@dataclass(frozen=True)
class Lowered(Plan):
    """A graph in Relax, and what Relax has no words for.

    names: variable → node. owners: variable → the node whose row made it. views: node → the node that it is a torch
    view of. The plan's constants are parameters of `main` too.
    """

    module: Any
    names: Mapping[str, str]
    owners: Mapping[str, str]
    views: Mapping[str, str]


def constants_of(graph: Graph) -> dict[str, torch.Tensor]:
    """The tensors that a graph holds, by the names of their `get_attr` nodes."""
    held = [n for n in graph.nodes if n.op == "get_attr" and isinstance(n.meta.get("val"), torch.Tensor)]
    return {node.name: attribute(node) for node in held}


def tensor_outputs(graph: Graph) -> list[fx.Node]:
    """The nodes whose tensors the graph returns, in order, without sizes and None."""
    (results,) = graph.nodes[-1].args
    return [n for n in results if isinstance(n, fx.Node) and not is_size(n)]  # type: ignore[union-attr]
