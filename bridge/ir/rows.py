"""What a row of a backend's table says of a call: by the parameters that it names, and by a rule of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from bridge.ir.schema import REQUIRED, defaults
from bridge.ir.shapes import fake, tensors_of


def schema_names(fn: Callable[..., Any]) -> list[str]:
    """The parameters of a function by schema name."""
    return ["self" if name == "x" else name for name in inspect.signature(fn).parameters]


def unsupported_argument(
    op: OpOverload, parameters: Collection[str], node: fx.Node, arguments: Mapping[str, Any]
) -> str | None:
    """An argument that the row does not name, and that has another value than its default."""
    for name, default in defaults(op).items():
        value = arguments[name]
        if name in parameters or same(value, default):
            continue
        is_neutral = NEUTRAL.get(name)
        if is_neutral is None or not is_neutral(value, node):
            return f"{name}={fake(value)} is not supported"
    return None


def same(value: Any, default: Any) -> bool:
    """The value is the default. A tensor or a size that is computed never is."""
    if default is REQUIRED or isinstance(value, fx.Node):
        return False
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return list(value) == list(default)
    return value is default or (type(value) is type(default) and value == default)


def own_device(value: Any, node: fx.Node) -> bool:
    results = [t for t in tensors_of(node) if t.device != torch.device("meta")]
    return value is None or all(t.device.type == torch.device(value).type for t in results)


NEUTRAL: dict[str, Callable[[Any, fx.Node], bool]] = {
    "layout": lambda value, node: value in (None, torch.strided),
    "device": own_device,
    "pin_memory": lambda value, node: not value,
    "non_blocking": lambda value, node: True,
    "memory_format": lambda value, node: True,
}
"""Arguments that a row need not name: the graph's own way of holding tensors, and what the edge contract sees to."""


def asked(rule: Callable[..., Any] | None, arguments: Mapping[str, Any]) -> Any:
    """What a row's own rule says of a call: it gets fake tensors and plain values for the arguments it names."""
    if rule is None:
        return None
    return rule(*(fake(arguments[name]) for name in wanted(rule)))


@cache
def wanted(rule: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(schema_names(rule))
