"""Forward and backward as one graph, for a joint graph that ends in one loss.

What the backward would need is then never kept: all gradients are computed where the loss is, for a gradient of the
loss of 1, and the backward multiplies them by the gradient that it is given, unless that is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from bridge.ir.joint import Boxed, Role
from bridge.ir.shapes import tensors_of
from bridge.passes.split import Split, save_what_is_random

aten = torch.ops.aten


def joined_or(split: Split, refused: Callable[[str], None]) -> Split:
    """Puts the backward into the forward, where a joint graph ends in one loss; else splits it, and says why."""

    def chosen(module: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **more: Any) -> tuple[Any, Any]:
        reason = _unfit(module, num_fwd_outputs)
        if reason:
            refused(reason)
            return split(module, inputs, num_fwd_outputs=num_fwd_outputs, **more)
        save_what_is_random(module.graph)
        return _Joint(module, num_fwd_outputs).split()

    return chosen


def _unfit(module: fx.GraphModule, forward_outputs: int) -> str:
    tangents = _tangents(module)
    if len(tangents) != 1 or tangents[0].meta["val"].numel() != 1:
        return f"{len(tangents)} results have gradients" if len(tangents) != 1 else "its result is no single number"
    if any(t.dtype is torch.float16 for node in module.graph.nodes for t in tensors_of(node)):
        return "in float16 gradients are lost unless the loss is scaled before its backward"
    gradients = _results(module)[forward_outputs:]
    if any(isinstance(g, fx.Node) and not isinstance(g.meta.get("val"), torch.Tensor) for g in gradients):
        return "a gradient is no tensor"
    return ""


def _tangents(module: fx.GraphModule) -> list[fx.Node]:
    """The inputs that only the backward has."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return [node for node in placeholders if type(node.meta.get("desc")).__name__ == "TangentAOTInput"]


def _results(module: fx.GraphModule) -> Sequence[Any]:
    return list(next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0])  # type: ignore[arg-type]


class _Joint:
    def __init__(self, module: fx.GraphModule, forward_outputs: int) -> None:
        self._module = module
        self._output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
        results = _results(module)
        self._forward, self._gradients = results[:forward_outputs], results[forward_outputs:]
        self._descriptions = list(self._output.meta.get("desc") or [None] * len(results))
        (self._tangent,) = _tangents(module)
        self._kept = list(dict.fromkeys(g for g in self._gradients if g is not None and g is not self._tangent))

    def split(self) -> tuple[fx.GraphModule, fx.GraphModule]:
        return self._with_backward(), self._scaling()

    def _with_backward(self) -> fx.GraphModule:
        """The loss and all gradients, for a gradient of the loss of 1."""
        graph = fx.Graph()
        new: dict[fx.Node, fx.Node] = {}
        inputs = [node for node in self._module.graph.nodes if node.op == "placeholder" and node is not self._tangent]
        for node in inputs:
            new[node] = graph.node_copy(node)
        like = self._tangent.meta["val"]
        options = {"dtype": like.dtype, "device": like.device}
        new[self._tangent] = graph.call_function(aten.full.default, (list(like.shape), 1), options)
        new[self._tangent].meta = {"val": like}
        for node in self._module.graph.nodes:
            if node not in new and node is not self._output:
                new[node] = graph.node_copy(node, new.__getitem__)
        results = [*self._forward, *self._kept]
        output = graph.output(tuple(new[r] if isinstance(r, fx.Node) else r for r in results))
        described = self._descriptions[: len(self._forward)]
        output.meta = {"desc": (*described, *[Role.SAVED] * len(self._kept))}
        return fx.GraphModule(self._module, graph)

    def _scaling(self) -> fx.GraphModule:
        """The gradients times the gradient of the loss."""
        graph = fx.Graph()
        kept = {node: graph.placeholder(node.name) for node in self._kept}
        tangent = graph.placeholder(self._tangent.name)
        for old, new in (*kept.items(), (self._tangent, tangent)):
            new.meta = {key: value for key, value in old.meta.items() if old is self._tangent or key != "desc"}
        scaled: dict[Any, fx.Node | None] = {None: None, self._tangent: tangent}
        for node, value in kept.items():
            factor = self._factor(graph, tangent, node.meta["val"])
            product = graph.call_function(aten.mul.Tensor, (value, factor))
            product.meta = {"val": node.meta["val"]}
            scaled[node] = product
        output = graph.output(tuple(scaled[g] for g in self._gradients))
        output.meta = {"desc": tuple(self._descriptions[len(self._forward) :])}
        return fx.GraphModule(self._module, graph)

    @staticmethod
    def _factor(graph: fx.Graph, tangent: fx.Node, gradient: torch.Tensor) -> fx.Node:
        """The loss's gradient with no dimensions and, if it would decide the type of the product, in another type."""
        value = tangent.meta["val"]
        if value.dim():
            tangent = graph.call_function(aten.view.default, (tangent, []))
            value = value.reshape(())
            tangent.meta = {"val": value}
        if torch.result_type(gradient, value) is not gradient.dtype:
            tangent = graph.call_function(aten._to_copy.default, (tangent,), {"dtype": gradient.dtype})
            tangent.meta = {"val": value.to(gradient.dtype)}
        return tangent


def unless_one(module: fx.GraphModule, run: Boxed) -> Boxed:
    """A backward that hands out the gradients as they are where the loss's gradient is 1, as `loss.backward()` has it.

    Only for the backward of a joined graph, and on a CPU; on a GPU one would have to wait for that number.
    """
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    results = [_scaled(value, inputs[-1]) for value in _results(module)] if inputs else []
    if not all(value is None or value in inputs[:-1] for value in results):
        return run
    places = [None if value is None else inputs.index(value) for value in results]

    def backward(args: list[Any]) -> Sequence[Any]:
        tangent = args[-1]
        if type(tangent) is not torch.Tensor or tangent.device.type != "cpu" or tangent.item() != 1:
            return run(args)
        gradients = [None if at is None else args[at] for at in places]
        args.clear()
        return gradients

    return backward


def _scaled(value: Any, tangent: fx.Node) -> Any:
    """What is multiplied by the loss's gradient to give a result; the result itself if it is something else."""
    if not isinstance(value, fx.Node) or value.target is not aten.mul.Tensor:
        return value
    kept, factor = value.args
    while isinstance(factor, fx.Node) and factor.target in (aten.view.default, aten._to_copy.default):
        factor = factor.args[0]
    return kept if factor is tangent else value
