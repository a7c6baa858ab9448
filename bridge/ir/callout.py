"""A node as a function that calls ATen: what runs every node that no kernel was generated for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from bridge.ir.nodes import op_name


def callout_inputs(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a call-out is given, in order. Subgraphs (`get_attr`) are part of the call-out itself."""
    return [source for source in node.all_input_nodes if source.op != "get_attr"]


def callout(node: fx.Node) -> tuple[Callable[..., Any], dict[str, int]]:
    """The node as a function of the values of `callout_inputs(node)`, and which overloads one call dispatches.

    Literal arguments and subgraphs are baked in. A function that only passes its arguments on, in order, is the
    overload itself. The result is what ATen returns: a tensor, a tuple or a list of tensors, a number, or None.
    """
    inputs = callout_inputs(node)
    if effect_of(node) is not None:
        return _with_token(node), _dispatched(node)
    if not node.kwargs and list(node.args) == inputs:
        return node.target, _dispatched(node)  # type: ignore[return-value]
    return calling(node, node.target, node.args, node.kwargs), _dispatched(node)


def calling(node: fx.Node, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """A function of the values of `callout_inputs(node)` that calls another one with arguments as a graph has them."""
    names = {source: f"x{position}" for position, source in enumerate(callout_inputs(node))}
    scope: dict[str, Any] = {"op": function}
    arguments = [_text(argument, names, scope) for argument in args]
    arguments += [f"{name}={_text(value, names, scope)}" for name, value in kwargs.items()]
    text = f"lambda {', '.join(names.values())}: op({', '.join(arguments)})"
    return eval(compile(text, f"<call-out {node.name}>", "eval"), scope)


def effect_of(node: fx.Node) -> Any | None:
    """The op that a node runs for its effect, in an order that tokens keep; None for any other node."""
    return node.args[1] if getattr(node.target, "__name__", "") == "with_effects" else None


def _with_token(node: fx.Node) -> Callable[..., Any]:
    """The op by itself, since a program keeps its order, and an empty tensor as the token that goes."""
    op: Any = node.args[1]
    return calling(node, lambda *args, **kwargs: _and_token(op(*args, **kwargs)), node.args[2:], node.kwargs)


def _and_token(made: Any) -> tuple[Any, ...]:
    return (torch.empty(0), *(made if isinstance(made, tuple) else (made,)))


def _text(value: Any, names: dict[fx.Node, str], scope: dict[str, Any]) -> str:
    """Python text of one argument; what is neither an input nor a container is bound in `scope`."""
    if isinstance(value, fx.Node):
        return names[value] if value in names else _bind(attribute(value), scope)
    if isinstance(value, list | tuple):
        inside = "".join(f"{_text(item, names, scope)}, " for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return "{" + "".join(f"{key!r}: {_text(item, names, scope)}, " for key, item in value.items()) + "}"
    if isinstance(value, slice):
        parts = (_text(part, names, scope) for part in (value.start, value.stop, value.step))
        return f"slice({', '.join(parts)})"
    return _bind(value, scope)


def _bind(value: Any, scope: dict[str, Any]) -> str:
    name = f"c{len(scope)}"
    scope[name] = value
    return name


def attribute(node: fx.Node) -> Any:
    """What a `get_attr` node stands for: a subgraph of a higher-order op, or a constant tensor."""
    owner: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        owner = getattr(owner, part)
    return owner


def _dispatched(node: fx.Node) -> dict[str, int]:
    """Which overloads one run dispatches. A higher-order op dispatches those of the overloads it is given."""
    if isinstance(node.target, torch._ops.OpOverload):
        return {op_name(node): 1}
    counts: dict[str, int] = {}
    for argument in node.args:
        if isinstance(argument, torch._ops.OpOverload):
            counts[str(argument)] = counts.get(str(argument), 0) + 1
        elif isinstance(argument, fx.Node) and argument.op == "get_attr":
            _add_subgraph(attribute(argument), counts)
    return counts


def _add_subgraph(module: Any, counts: dict[str, int]) -> None:
    """Every overload of a subgraph once: of the branches of a `cond` only one runs, so this is an upper bound."""
    if not isinstance(module, fx.GraphModule):
        return
    for node in module.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            counts[op_name(node)] = counts.get(op_name(node), 0) + 1
