"""Importers as somebody else could write them, good ones and bad ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Tensors = Sequence[torch.Tensor]


def eager(module: fx.GraphModule, inputs: Tensors) -> Callable[[Tensors], Any]:
    return lambda given: module(*given)


def without_nan(module: fx.GraphModule, inputs: Tensors) -> Callable[[Tensors], Any]:
    return lambda given: [made.nan_to_num() for made in module(*given)]


def only_floats(module: fx.GraphModule, inputs: Tensors) -> Callable[[Tensors], Any]:
    if not all(x.is_floating_point() for x in inputs):
        raise TypeError("no integers")
    return eager(module, inputs)


def not_empty(module: fx.GraphModule, inputs: Tensors) -> Callable[[Tensors], Any]:
    def run(given: Tensors) -> Any:
        if not all(x.numel() for x in given):
            raise RuntimeError("an empty buffer")
        return module(*given)

    return run


def with_one_more(module: fx.GraphModule, inputs: Tensors) -> Callable[[Tensors], Any]:
    return lambda given: [*module(*given), torch.zeros(1)]


def crashing(module: fx.GraphModule, inputs: Tensors) -> Callable[[Tensors], Any]:
    os.abort()
