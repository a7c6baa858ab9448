"""Sizes that stay symbols after a graph break: the results of one graph are the inputs of the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from bridge.frontends.torch.aliasing import results_of


def with_marked_results(
    module: fx.GraphModule, run: Callable[..., Any], mark: Callable[[torch.Tensor, int], None]
) -> Callable[..., Any]:
    """The compiled graph, whose results are marked as dynamic at its first run where their sizes are symbols.

    What comes after a break is compiled when it is first run. Torch would take the sizes that it sees then for fixed
    ones, and compile again for the next. mark: tells torch that a dimension of a tensor is dynamic.
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
