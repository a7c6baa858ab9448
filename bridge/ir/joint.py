"""A captured graph: fx nodes with fake tensors, and what each input and output is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import torch
from torch import fx

from bridge.ir.shapes import leaves

Boxed = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph: takes its inputs in a list, which it empties, and returns the outputs in order."""


class Phase(StrEnum):
    """When a graph runs. A step is forward, backward and the optimizer's update in one."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INFERENCE = "inference"
    JOINT = "joint"
    OPTIMIZER = "optimizer"
    STEP = "step"


class Role(StrEnum):
    """What an input or an output of a graph is."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    TANGENT = "tangent"
    SAVED = "saved"
    STATE = "state"
    SIZE = "size"
    OUTPUT = "output"
    GRADIENT = "gradient"
    MUTATED = "mutated"


@dataclass(frozen=True)
class Graph:
    """One functional graph of ATen ops.

    name: "graph_0" and so on, shared by the forward and the backward of one joint graph.
    inputs, outputs: a role for each placeholder and each result, in order.
    input_names: the user's name for an input where it has one ("layer.weight"), else "".
    targets: for each result the position of the input that it is written into, None for one that is returned; empty
        where all are returned.
    shared: by name, what the graphs of one compilation have in common when they run.
    """

    name: str
    phase: Phase
    module: fx.GraphModule
    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]
    input_names: tuple[str, ...] = ()
    targets: tuple[int | None, ...] = ()
    shared: dict[str, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)

    @property
    def nodes(self) -> list[fx.Node]:
        """The nodes in program order."""
        return list(self.module.graph.nodes)

    @cached_property
    def device(self) -> torch.device:
        """Where its kernels run: on the first GPU that a tensor of it is on, else on the CPU."""
        values = (value for node in self.module.graph.nodes for value in leaves(node.meta.get("val")))
        devices = (value.device for value in values if isinstance(value, torch.Tensor))
        return next((device for device in devices if device.type == "cuda"), torch.device("cpu"))

    @property
    def written(self) -> list[tuple[Any, fx.Node]]:
        """The results that are written into an input, each with the input."""
        placeholders = [node for node in self.nodes if node.op == "placeholder"]
        results: Any = self.nodes[-1].args[0]
        return [(value, placeholders[at]) for value, at in zip(results, self.targets) if at is not None]

    @property
    def returned(self) -> list[Any]:
        """The results that are returned."""
        results: Any = self.nodes[-1].args[0]
        return [value for value, at in zip(results, self.targets or [None] * len(results)) if at is None]


@dataclass(frozen=True)
class JointGraph(Graph):
    """Forward and backward as one graph. The first `forward_outputs` results are the forward's, the rest gradients."""

    forward_outputs: int = 0


def rewritten(graph: Graph, edit: Callable[[fx.Graph], None]) -> Graph:
    """What an edit of its nodes makes of a graph, which itself stays as it was.

    The edited nodes are checked, and torch writes them as Python once, which takes longer than to copy them.
    """
    nodes = _copy(graph.module)
    edit(nodes)
    nodes.lint()
    return replace(graph, module=fx.GraphModule(graph.module, nodes))


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph in new nodes of the same names and metadata; constants and subgraphs are shared."""
    return fx.GraphModule(module, _copy(module))


def _copy(module: fx.GraphModule) -> fx.Graph:
    graph = fx.Graph()
    value, output = graph.graph_copy(module.graph, {}, return_output_node=True)  # type: ignore[misc]
    graph.output(value).meta = dict(output.meta)  # type: ignore[union-attr]
    return graph
