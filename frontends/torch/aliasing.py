"""Where AOTAutograd would give back something else than eager does: found before it does, and mended or left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from bridge.ir.joint import JointGraph, Role

_BASES = ("SyntheticBaseAOTInput", "ViewBaseAOTInput")


class Unfit(Exception):
    """A graph that AOTAutograd cannot run rightly. The message says why; the graph runs op by op in eager."""


def check_results(module: fx.GraphModule) -> None:
    """Raise Unfit for a result that is a view made under no_grad of a tensor with a gradient: a leaf for autograd."""
    for value in results_of(module):
        if isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad and value._is_view():
            raise Unfit("a result is a view that was made under no_grad of a tensor that requires a gradient")


def check_inputs(module: fx.GraphModule) -> None:
    """Raise Unfit where inputs overlap and one of them is changed in place: views of them come back wrong."""
    for node in module.graph.nodes:
        if node.op == "placeholder" and type(node.meta.get("desc")).__name__ in _BASES:
            raise Unfit("two inputs share memory and one of them is changed in place")


def with_detached_results(module: fx.GraphModule, run: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled graph, with its detached results detached.

    Views of one intermediate come back with a gradient all together, also those that the user had detached.
    """
    detached = detached_results(module)
    if not detached:
        return run

    def call(*args: Any) -> Any:
        results = list(run(*args))
        for position in detached:
            if results[position].requires_grad:
                results[position] = results[position].detach()
        return tuple(results)

    return call


def detached_results(module: fx.GraphModule) -> tuple[int, ...]:
    """Positions of results that require no gradient and share memory with one that does."""
    results = results_of(module)
    tensors = [value for value in results if isinstance(value, torch.Tensor)]
    with_gradient = {_memory(value) for value in tensors if value.requires_grad}
    return tuple(
        position
        for position, value in enumerate(results)
        if isinstance(value, torch.Tensor) and not value.requires_grad and _memory(value) in with_gradient
    )


def linked_results(joint: JointGraph) -> tuple[fx.Node, fx.Node] | None:
    """Two results with a gradient of which the first is computed from the second; None where there are none.

    Both are results of one autograd function, so that the gradient of one by the other is lost.
    """
    results = differentiable_results(joint)
    for node in results:
        known = ancestors(node).intersection(results)
        if known:
            return node, known.pop()
    return None


def differentiable_results(joint: JointGraph) -> list[fx.Node]:
    """The results of the forward of which a gradient can be given, in the order of the tangents."""
    output = joint.nodes[-1]
    forward: Sequence[Any] = output.args[0][: joint.forward_outputs]  # type: ignore[index]
    of: dict[Any, Any] = dict(zip(output.meta.get("desc") or (), forward, strict=False))
    found = [of.get(getattr(node.meta.get("desc"), "output", None)) for node in tangents(joint)]
    return [node for node in found if isinstance(node, fx.Node)]


def ancestors(node: fx.Node, stop: Callable[[fx.Node], bool] = lambda node: False) -> set[fx.Node]:
    """All that a node is computed from, in the end. What is behind a node at which to stop is left out, with it."""
    found: set[fx.Node] = set()
    pending = [node]
    while pending:
        for source in pending.pop().all_input_nodes:
            if source not in found and not stop(source):
                found.add(source)
                pending.append(source)
    return found


def tangents(joint: JointGraph) -> list[fx.Node]:
    """The inputs that are gradients of results."""
    placeholders = [node for node in joint.nodes if node.op == "placeholder"]
    return [node for node, role in zip(placeholders, joint.inputs) if role is Role.TANGENT]


def results_of(module: fx.GraphModule) -> list[Any]:
    """The fake values of Dynamo's results, in order."""
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    results = output.args[0]
    assert isinstance(results, (tuple, list)), "Dynamo's graphs return a flat tuple"
    return [node.meta.get("example_value") if isinstance(node, fx.Node) else node for node in results]


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
