"""Sizes that stay symbols after a graph break: the results of one graph are the inputs of the next."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn

from bridge.frontends.torch.aliasing import results_of
from bridge.ir.trees import tree_leaves

Mark = Callable[[torch.Tensor, int], None]
"""What tells torch that a dimension of a tensor is dynamic, unless it turns out to be fixed."""

Dims = Callable[[torch.Tensor], Collection[int]]
"""What tells which dimensions of a tensor are marked as dynamic."""

SYMBOLS = "_bridge_symbols"
"""The name of an attribute of a tensor that a broken graph gave: which of its dimensions are symbols in that graph."""


def with_marked_results(module: fx.GraphModule, run: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled graph, of whose results it is remembered which of their sizes are symbols.

    What comes after a break is compiled when it is first run. Torch would take the sizes that it sees then for fixed
    ones, and compile again for the next.
    """
    found = [
        (position, dims)
        for position, value in enumerate(results_of(module))
        if isinstance(value, torch.Tensor)
        and (dims := frozenset(dim for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt)))
    ]

    def call(*args: Any) -> Any:
        results = run(*args)
        for position, dims in found:
            setattr(results[position], SYMBOLS, dims)
        return results

    return call if found else run


def marked_sizes(values: Any, dims: Dims) -> Iterator[int]:
    """The sizes that a function is told to be dynamic, before a graph of it is captured."""
    for tensor in _tensors(values):
        yield from (tensor.shape[dim] for dim in dims(tensor))


@contextmanager
def marked_inputs(frame: Any, sizes: Collection[int], mark: Mark) -> Iterator[list[str]]:
    """Mark what a frame behind a break is given, while it is compiled; says where its `integers` are.

    Where plain Python has computed with the results of a graph, nobody knows which sizes came of a symbol: the first
    dimension is taken for one, and whatever is as long as such a one is, or as a symbol was. sizes: what the symbols
    of the graphs before have stood for. The marks go again: torch compiles a frame anew for a tensor that has more of
    them than the one that it was compiled for.
    """
    tensors = _tensors(frame.f_locals)
    symbols = {*sizes, *(len(tensor) for tensor in tensors if tensor.dim())}
    before = [{n: copy.copy(v) if isinstance(v, set) else v for n, v in vars(tensor).items()} for tensor in tensors]
    for tensor in tensors:
        for dim, size in enumerate(tensor.shape):
            if size > 1 and (size in symbols or dim in getattr(tensor, SYMBOLS, ())):
                mark(tensor, dim)
    try:
        yield integers(frame, symbols)
    finally:
        for tensor, attributes in zip(tensors, before, strict=True):
            vars(tensor).clear()
            vars(tensor).update(attributes)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor) and not isinstance(t, nn.Parameter)]


RESUMED = "torch_dynamo_resume_in_"
"""How the names of the functions begin that go on behind a graph break."""


def integers(frame: Any, sizes: Collection[int]) -> list[str]:
    """Regular expressions for where a function behind a break finds integers that may have been sizes.

    Where it goes on behind the break any integer may be; another function is given those that are what a symbol was.
    """
    resumed = frame.f_code.co_name.startswith(RESUMED)

    def may_be(value: Any) -> bool:
        return type(value) is int and (resumed or (value > 1 and value in sizes))

    found = []
    for name, value in frame.f_locals.items():
        place = re.escape(f"L['{name}']")
        if may_be(value):
            found.append(f"{place}$")
        elif isinstance(value, list | tuple):
            items = [str(number) for number, item in enumerate(value) if may_be(item)]
            found += [rf"{place}\[({'|'.join(items)})\]$"] if items else []
        elif resumed and isinstance(value, FunctionType) and value.__closure__:
            found.append(rf"{place}\.__closure__.*\[\d+\]$")
    return found


def hints(values: Any) -> Iterator[int]:
    """What the symbols among some values stand for, as far as it is known."""
    for value in values:
        node: Any = value.node if isinstance(value, torch.SymInt) else None
        if node is not None and node.has_hint():
            yield int(node.hint)
