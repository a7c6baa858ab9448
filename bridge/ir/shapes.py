"""Sizes, types and devices read from fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def fake(value: Any) -> Any:
    """An argument as it stands in a graph, with every fx node replaced by its fake tensor or size."""
    return map_arg(value, lambda node: node.meta.get("val"))


def leaves(value: Any) -> Iterator[Any]:
    """What lists, tuples and mappings hold, however nested, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    else:
        yield value


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """The fake tensors that a node reads and gives, inputs first."""
    read = leaves(fake([list(node.args), dict(node.kwargs)]))
    return [v for v in (*read, *leaves(node.meta.get("val"))) if isinstance(v, torch.Tensor)]


def is_size(node: fx.Node) -> bool:
    """The node computes a size or another plain number, not a tensor."""
    val = node.meta.get("val")
    return isinstance(val, (int, float, *SYMBOLIC))


def symbols_of(node: fx.Node) -> set[str]:
    """The names of the symbolic sizes and scalars that a node reads or gives."""
    return symbols_in(fake([list(node.args), dict(node.kwargs)])) | symbols_in(node.meta.get("val"))


def new_symbols_of(node: fx.Node) -> set[str]:
    """The names of the sizes of a node's result, and of where it begins, that nothing it reads has.

    They depend on values.
    """
    made = node.meta.get("val")
    found = symbols_in(made) | symbols_in(_begins(made))
    if not found:  # as of all nodes of most graphs
        return found
    given = fake([list(node.args), dict(node.kwargs)])
    return found - symbols_in(given) - symbols_in(_begins(given))


def _begins(values: Any) -> list[Any]:
    """Where in their memory tensors begin."""
    return [value.storage_offset() for value in leaves(values) if _is_strided(value)]


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def real_symbols_of(node: fx.Node) -> set[str]:
    """The names of the symbols that a node reads or gives and that are no sizes: floats that `item` gave."""
    values = leaves([fake([list(node.args), dict(node.kwargs)]), node.meta.get("val")])
    floats = [value.node.expr for value in values if isinstance(value, torch.SymFloat)]
    return {str(symbol) for expr in floats for symbol in expr.free_symbols if not symbol.is_integer}


def symbols_in(values: Any) -> set[str]:
    """The names of the symbols that sizes, other numbers and tensors' sizes are made of."""
    found: set[str] = set()
    for value in leaves(values):
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, SYMBOLIC):
                found.update(str(s) for s in size.node.expr.free_symbols)
    return found


def positive(dim: int, rank: int) -> int:
    """A dimension counted from the front. A 0-d tensor is taken for one of a single dimension, as in torch."""
    return dim % max(rank, 1)


def positives(dim: Any, rank: int) -> list[int]:
    """Dimensions counted from the front, sorted: of one, of several, or every one for None and for an empty list."""
    if dim is None or dim == []:
        return list(range(rank))
    dims = dim if isinstance(dim, (list, tuple)) else [dim]
    return sorted(d for d in {positive(d, rank) for d in dims} if d < rank)
