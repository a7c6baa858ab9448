"""One training step whose gradients nobody keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bridge.errors import BadOption
from bridge.ir.trees import tree_leaves, tree_map


def dry_step(
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    loss_fn: Callable[[Any], torch.Tensor] | None,
) -> None:
    """Call forward, and backward if a result requires a gradient. No `.grad` is written, no graph of the user's used.

    The loss is loss_fn(output), or the sum of all floating and complex outputs. Raises BadOption if there is none.
    """
    known: dict[int, torch.Tensor] = {}
    args, kwargs = tree_map(lambda value: _own_graph(value, known), (args, dict(kwargs)))
    output = call(*args, **kwargs)
    loss = summed(output) if loss_fn is None else loss_fn(output)
    if loss_fn is not None and not isinstance(loss, torch.Tensor):
        raise BadOption(
            f"loss_fn={loss_fn!r} gives {type(loss).__name__}: give a function to a loss, which is a tensor"
        )
    if loss is not None and loss.requires_grad:
        torch.autograd.grad(loss, _leaves(loss), allow_unused=True)


def _own_graph(value: Any, known: dict[int, torch.Tensor]) -> Any:
    """An argument that the user computed, as one that ends at a leaf of our own."""
    if not isinstance(value, torch.Tensor) or value.grad_fn is None:
        return value
    if id(value) not in known:
        known[id(value)] = value.detach().requires_grad_().clone()
    return known[id(value)]


def summed(output: Any) -> torch.Tensor | None:
    """The sum of all floating and complex tensors of an output that require a gradient; None where none does.

    Raises BadOption where the output holds no tensor.
    """
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    if not tensors and torch.is_grad_enabled():
        raise BadOption(f"no tensor is found in the {type(output).__name__} that the model gives: pass loss_fn")
    parts = [torch.view_as_real(t) if t.is_complex() else t for t in tensors if t.requires_grad]
    return torch.stack([part.sum().to(torch.float64) for part in parts]).sum() if parts else None


def _leaves(loss: torch.Tensor) -> list[torch.Tensor]:
    """The tensors at which the graph of a loss ends."""
    if loss.grad_fn is None:
        return [loss]
    found: dict[int, torch.Tensor] = {}
    seen, waiting = {loss.grad_fn}, [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable  # type: ignore[attr-defined]
        fresh = {before for before, _ in node.next_functions if before is not None and before not in seen}
        seen |= fresh
        waiting += fresh
    return list(found.values())
