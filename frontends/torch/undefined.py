"""Gradients that do not exist: eager gives None to what no used result was computed from, AOTAutograd gives zeros.

AOTAutograd puts zeros in place of the gradients of unused results and runs the backward over them. Here it is known
which results an input reaches, and the zeros of one that reaches only unused ones are taken back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.hooks import RemovableHandle

from bridge.frontends.torch.aliasing import ancestors, differentiable_results, tangents
from bridge.ir.joint import JointGraph
from bridge.ir.shapes import is_size

aten = torch.ops.aten

_COUNTING = threading.Lock()
_own = 0

Reached = tuple[frozenset[int], ...]
"""For each gradient of a joint graph, in order, which of the differentiable results its input reaches.

Only tensors are counted: autograd knows nothing of the sizes that a graph is given.
"""


def reached_results(joint: JointGraph) -> Reached | None:
    """What each input reaches; None where all reach the same, so that a gradient that is wanted exists.

    An input reaches a result from which its gradient is computed, and one that is computed from it: the gradient of a
    sign is zero and depends on nothing, but it exists.
    """
    results = differentiable_results(joint)
    placeholders = [node for node in joint.nodes if node.op == "placeholder"]
    gradients: Sequence[Any] = joint.nodes[-1].args[0][joint.forward_outputs :]  # type: ignore[index]
    known = [{node, *ancestors(node, _passes_no_gradient)} for node in results]
    given = tangents(joint)
    behind = _behind(joint, given)
    reached = []
    for source, gradient in zip(placeholders, gradients, strict=False):
        if is_size(source):
            continue
        mine = behind[gradient] if isinstance(gradient, fx.Node) else frozenset()
        reaches = (t in mine or source in k for t, k in zip(given, known, strict=False))
        reached.append(frozenset(n for n, reaches_it in enumerate(reaches) if gradient is not None and reaches_it))
    comparable = len(placeholders) - len(given) == len(gradients) and len(given) == len(results)
    if not comparable or all(not some or len(some) == len(results) for some in reached):
        return None
    return tuple(reached)


def _behind(joint: JointGraph, given: Sequence[fx.Node]) -> dict[fx.Node, frozenset[fx.Node]]:
    """Which of the given nodes each is computed from, in one walk for the gradients of all parameters."""
    found: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in joint.nodes:
        sources = node.all_input_nodes
        nearest = frozenset(source for source in sources if source in given)
        found[node] = nearest.union(*(found[source] for source in sources))
    return found


def _passes_no_gradient(node: fx.Node) -> bool:
    """Detached tensors are traced as aliases."""
    value = node.meta.get("val")
    is_real = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return node.target in (aten.detach.default, aten.alias.default) or not (is_real or isinstance(value, tuple | list))


def with_missing_gradients(run: Callable[..., Any], reached: Reached) -> Callable[..., Any]:
    """The compiled graph, after whose backward the gradients that eager does not give are None."""
    differentiable = {number for some in reached for number in some}

    def call(*args: Any) -> Any:
        results = run(*args)
        outputs = dict(_made_by_autograd(results))
        if len(set(outputs.values())) == 1 and len(outputs) > max(differentiable):
            _take_back(outputs, reached)
        return results

    return call


def _take_back(outputs: Mapping[int, Any], reached: Reached) -> None:
    positions = sorted(outputs)
    needs = [[positions[number] for number in some] for some in reached]

    def hook(gradients: Sequence[Any], of_results: Sequence[Any]) -> tuple[Any, ...] | None:
        if len(gradients) != len(needs):
            return None
        return tuple(
            None if need and all(of_results[position] is None for position in need) else gradient
            for gradient, need in zip(gradients, needs, strict=True)
        )

    global _own
    with _COUNTING:
        next(iter(outputs.values())).register_hook(hook)
        _own += 1


def handles_of_others() -> int:
    """How many hooks have been registered in this process but for those of `with_missing_gradients`."""
    with _COUNTING:
        return RemovableHandle.next_id - _own


def _made_by_autograd(results: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """The compiled function behind each result that has a gradient, and which of its results this one is."""
    for result in results:
        function = result.grad_fn if isinstance(result, torch.Tensor) else None
        if function is None:
            continue
        position = result.output_nr
        if not _is_compiled(function) and function.next_functions:  # a view of what the function gave
            function, position = function.next_functions[0]
        if _is_compiled(function):
            yield position, function


def _is_compiled(function: Any) -> bool:
    return type(function).__name__ == "CompiledFunctionBackward"
