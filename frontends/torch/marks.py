"""Sizes that stay symbols after a graph break: the results of one graph are the inputs of the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from bridge.frontends.torch.aliasing import results_of

Mark = Callable[[torch.Tensor, int], None]
"""What tells torch that a dimension of a tensor is dynamic, unless it turns out to be fixed."""


def with_marked_results(module: fx.GraphModule, run: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    """The compiled graph, whose results are marked as dynamic at its first run where their sizes are symbols.

    What comes after a break is compiled when it is first run. Torch would take the sizes that it sees then for fixed
    ones, and compile again for the next.
    """
    found = [
        (position, dim)
        for position, value in enumerate(results_of(module))
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ())
        if isinstance(size, torch.SymInt)
    ]
    left = list(found)

    def call(*args: Any) -> Any:
        results = run(*args)
        while left:
            position, dim = left.pop()
            mark(results[position], dim)
        return results

    return call if found else run


def mark_inputs(values: Any, sizes: Collection[int], mark: Mark) -> None:
    """Mark what a frame behind a break is given, where plain Python has computed with the results of a graph.

    Nobody knows by then which sizes came of a symbol: the first dimension is taken for one, and whatever is as long as
    a symbol was. sizes: what the symbols of the graphs before have stood for.
    """
    for tensor in tree_leaves(values):
        if isinstance(tensor, torch.Tensor) and not isinstance(tensor, nn.Parameter):
            for dim, size in enumerate(tensor.shape):
                if size > 1 and (dim == 0 or size in sizes):
                    mark(tensor, dim)


RESUMED = "torch_dynamo_resume_in_"
"""How the names of the functions begin that go on behind a graph break."""


def integers(frame: Any) -> list[str]:
    """Regular expressions for where a function that goes on behind a break finds integers: they may have been sizes."""
    if not frame.f_code.co_name.startswith(RESUMED):
        return []
    found = []
    for name, value in frame.f_locals.items():
        place = re.escape(f"L['{name}']")
        if type(value) is int:
            found.append(f"{place}$")
        elif isinstance(value, list | tuple) and any(type(item) is int for item in value):
            found.append(rf"{place}\[\d+\]$")
        elif isinstance(value, FunctionType) and value.__closure__:
            found.append(rf"{place}\.__closure__.*\[\d+\]$")
    return found


def hints(values: Any) -> Iterator[int]:
    """What the symbols among some values stand for, as far as it is known."""
    for value in values:
        node: Any = value.node if isinstance(value, torch.SymInt) else None
        if node is not None and node.has_hint():
            yield int(node.hint)
