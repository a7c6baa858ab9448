"""A graph as text that says all that a compiler reads of it, so that equal texts are compiled alike.

Left out is what only people read: where a node comes from, and what the graph and its inputs are called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from bridge.ir.joint import Graph
from bridge.ir.shapes import leaves, symbols_of

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Arguments that their own text tells."""


class Untold(Exception):
    """Something in a graph that no text tells. The message says what."""


def described(graph: Graph) -> str:
    """The text of a graph without symbolic sizes. Raises Untold for any other, and for what has no text."""
    memory: dict[int, int] = {}
    roles = [graph.phase, graph.inputs, graph.outputs, graph.targets, graph.device]
    return "\n".join([repr(roles), *(line for node in graph.nodes for line in _lines(node, memory))])


def _lines(node: fx.Node, memory: dict[int, int]) -> Iterator[str]:
    if symbols_of(node):
        raise Untold(f"{node.name} has a size that is a symbol")
    value = node.meta.get("val")
    if node.op == "get_attr" and not isinstance(value, torch.Tensor):
        raise Untold(f"{node.name} is a graph of its own")
    target = str(node.target) if node.op in ("call_function", "get_attr") else ""
    yield f"{node.name} {node.op} {target} {_argument(node.args)} {_argument(node.kwargs)}"
    yield f"  {type(value).__name__} {', '.join(_value(leaf, memory) for leaf in leaves(value))}"


def _argument(value: Any) -> str:
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if isinstance(value, list | tuple):
        return f"{'[' if isinstance(value, list) else '('}{', '.join(map(_argument, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_argument(held)}' for name, held in value.items())}}}"
    if isinstance(value, slice):
        return f"slice{_argument((value.start, value.stop, value.step))}"
    if type(value) in PLAIN:
        return repr(value)
    raise Untold(f"an argument is a {type(value).__name__}")


def _value(value: Any, memory: dict[int, int]) -> str:
    """A fake tensor: how it lies, and which others lie in the same memory."""
    if not isinstance(value, torch.Tensor):
        return _argument(value)
    told = f"{value.dtype} {tuple(value.shape)} {value.device} {value.layout}"
    if value.layout != torch.strided:
        return told
    place = memory.setdefault(value.untyped_storage()._cdata, len(memory))
    flags = f"{value.is_conj()} {value.is_neg()} {value._is_zerotensor()}"
    return f"{told} {value.stride()} {value.storage_offset()} in {place} {flags}"
