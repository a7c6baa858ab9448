"""A node as a line of Python that somebody can run elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from bridge.ir.nodes import input_tensors, op_name, shapes_and_dtypes
from bridge.ir.shapes import SYMBOLIC

NAMED = torch.dtype | torch.layout | torch.memory_format
"""Values whose `repr` is the name that torch has for them."""


class _NoText(Exception):
    """An argument that no short text stands for."""


def call_text(node: fx.Node) -> str:
    """The call with its literal arguments: "torch.ops.aten.topk.default(x0, 3, dim=-1)".

    x0, x1 … are the tensors of `input_tensors(node)`, in order. A symbolic size is the number that it was at capture.
    "" where there is no such text: an op that takes graphs, or tensors in a list of unknown length.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return ""
    tensors = [source for source in node.all_input_nodes if isinstance(source.meta.get("val"), torch.Tensor)]
    names = {source: f"x{position}" for position, source in enumerate(tensors)}
    try:
        arguments = [_text(argument, names) for argument in node.args]
        arguments += [f"{name}={_text(value, names)}" for name, value in node.kwargs.items()]
    except _NoText:
        return ""
    return f"torch.ops.{op_name(node)}({', '.join(arguments)})"


def sizes_at_capture(node: fx.Node) -> tuple[tuple[int | str, ...], ...]:
    """The sizes of `input_tensors(node)` where one is a symbol, else (). A name stays for what has no number."""
    tensors = input_tensors(node)
    if not any(isinstance(size, SYMBOLIC) for tensor in tensors for size in tensor.shape):
        return ()
    return tuple(tuple(hint_of(size) for size in tensor.shape) for tensor in tensors)


def refused_call(node: fx.Node) -> dict[str, Any]:
    """The fields of an event that say which call a node is: its shapes, its dtypes and its text."""
    shapes, dtypes = shapes_and_dtypes(input_tensors(node))
    return {"shapes": shapes, "dtypes": dtypes, "call": call_text(node), "sizes": sizes_at_capture(node)}


def hint_of(size: Any) -> Any:
    """What a symbolic size was at capture; its name where it has no such number. Any other size as it is."""
    if isinstance(size, SYMBOLIC):
        hint: Any = size.node.hint
        return hint if size.node.has_hint() else str(size)
    return size


def _text(value: Any, names: Mapping[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return names[value] if value in names else _text(value.meta.get("val", _NoText), names)
    if isinstance(value, list | tuple):
        inside = ", ".join(_text(item, names) for item in value)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, SYMBOLIC):
        if not value.node.has_hint():
            raise _NoText
        return repr(value.node.hint)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if value is None or isinstance(value, bool | int | float | complex | str | NAMED):
        return repr(value)
    raise _NoText
