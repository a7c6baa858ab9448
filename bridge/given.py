"""What a training step is called with: by it the model and the loss are called, and programs are told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

LossFn = Callable[..., torch.Tensor]


def called(model: Callable[..., Any], inputs: Any) -> Any:
    """What the model gives: of a mapping by name, of a tuple or a list by position, of anything else alone."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def loss_of(output: Any, loss_fn: LossFn | None, targets: tuple[Any, ...]) -> Any:
    """The loss of what a model gives; without a loss function what has none is the answer itself."""
    if loss_fn is not None:
        return loss_fn(output, *targets)
    return output if isinstance(output, torch.Tensor) else getattr(output, "loss", output)


def flattened(inputs: Any, targets: tuple[Any, ...]) -> tuple[list[torch.Tensor], Any]:
    """The tensors of a call in order, and what is to be the same for the same program beside them."""
    if isinstance(inputs, torch.Tensor) and all(isinstance(t, torch.Tensor) for t in targets):
        return [inputs, *targets], len(targets)
    if type(inputs) is dict and all(isinstance(t, torch.Tensor) for t in (*inputs.values(), *targets)):
        return [*inputs.values(), *targets], (len(targets), *inputs)
    leaves, spec = tree_flatten((dict(inputs) if isinstance(inputs, Mapping) else inputs, targets))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return tensors, (spec, [None if isinstance(leaf, torch.Tensor) else (type(leaf), said(leaf)) for leaf in leaves])


def said(leaf: Any) -> Any:
    """What is no tensor, as it is compared: a float by its bits, as 0.0 equals -0.0, and NaN not itself.

    Of an array of numpy's no program reads the elements; arrays that are compared give no single answer.
    """
    if type(leaf) is float:
        return leaf.hex()
    shape = getattr(leaf, "shape", ()) if hasattr(type(leaf), "__array_interface__") else ()
    return (str(leaf.dtype), shape) if shape else leaf  # an image of PIL's has the interface, and no shape
