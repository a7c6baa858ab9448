"""One training step whose gradients nobody keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bridge.errors import BadOption
from bridge.ir.provenance import code_line
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


def loss_checked(loss: Any, loss_fn: Callable[..., Any] | None) -> torch.Tensor:
    """What a loss function gives, or a model without one. Raises BadOption for what no gradients can be computed of."""
    if isinstance(loss, bool | int | float):
        wrong, remedy = f"a Python {type(loss).__name__}", "leave out `.item()`, and read it of what the step gives"
    elif not isinstance(loss, torch.Tensor):
        wrong, remedy = type(loss).__name__, "give the loss alone" if loss_fn is not None else "pass loss_fn"
    elif loss.numel() != 1:
        wrong, remedy = f"a tensor of sizes {list(loss.shape)}", "give its mean or its sum"
    elif not loss.requires_grad and torch.is_grad_enabled():
        wrong = "a tensor without a graph"
        remedy = "compute it from what the model gives, by what has a gradient and without `.detach()`"
    else:
        return loss
    raise BadOption(f"{_said(loss_fn)} gives {wrong}, and not the loss as a tensor of one element: {remedy}")


def _said(loss_fn: Callable[..., Any] | None) -> str:
    """A loss function by its name and line."""
    if loss_fn is None:
        return "the model, which is to give the loss where there is no loss_fn,"
    name, code = getattr(loss_fn, "__name__", type(loss_fn).__name__), getattr(loss_fn, "__code__", None)
    place = code_line(code) if code is not None else ""
    return f"loss_fn={name} ({place})" if place else f"loss_fn={name}"


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
