"""Values that depend on tensors, and fake values for the nodes that torch adds without saying what they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from bridge.ir.schema import call_arguments
from bridge.ir.shapes import fake, leaves

aten = torch.ops.aten


class Misjudged(Exception):
    """Torch says something of a size that is read out of a tensor which is not so; the graph has to break there."""


def check_sizes(module: fx.GraphModule) -> None:
    """Raises Misjudged where torch's fake tensors are wrong about what depends on values.

    `masked_select` is said to give no more elements than it is given, though a mask may make more of them; `unique`
    along a dimension that is counted from the end is said to keep that dimension; and what `unique_consecutive` gives
    back of an empty tensor is said to have its dimensions, and has one.
    """
    for node in module.graph.nodes:
        if node.target not in DEPENDING:
            continue
        given, *more = fake(call_arguments(node)).values()
        if DEPENDING[node.target](given, *more):
            raise Misjudged(f"torch tells wrong sizes of what {node.target} gives for {tuple(given.shape)}")


def _wider(given: torch.Tensor, mask: torch.Tensor) -> bool:
    return torch.broadcast_shapes(given.shape, mask.shape) != given.shape


def _empty_or_from_the_end(given: torch.Tensor, inverse: bool, counts: bool, dim: int | None) -> bool:
    return 0 in given.shape or (dim is not None and dim < 0)


DEPENDING: Mapping[Any, Callable[..., bool]] = {
    aten.masked_select.default: _wider,
    aten.unique_consecutive.default: _empty_or_from_the_end,
    aten.unique_dim.default: lambda given, dim, *more: dim < 0,
}
"""Ops whose results have sizes that depend on values, and whether torch is wrong about a call of one."""


def complete_values(module: fx.GraphModule) -> None:
    """Give each call of `module` that has no fake value one, by running it on the fake values of its arguments.

    The split does so where a random op is computed again in the backward: it saves the generator's state for it.
    Assertions about sizes that depend on values, and arithmetic of such sizes, come without values too.
    """
    for node in module.graph.nodes:
        if node.op != "call_function" or "val" in node.meta:
            continue
        if isinstance(node.target, OpOverload) and not node.target._schema.returns:
            node.meta["val"] = None
            continue
        arguments, keywords = fake(list(node.args)), fake(dict(node.kwargs))
        modes = [value.fake_mode for value in leaves([arguments, keywords]) if hasattr(value, "fake_mode")]
        with modes[0] if modes else nullcontext():
            node.meta["val"] = node.target(*arguments, **keywords)


def check_squeezes(module: fx.GraphModule) -> None:
    """Raises Misjudged where a dimension is to go if its size is 1, and the size depends on values: torch keeps it."""
    given = {str(s) for node in module.graph.find_nodes(op="placeholder") for s in _symbols(_value(node))}
    for node in module.graph.nodes:
        if node.target not in SQUEEZES or not isinstance(node.args[0], fx.Node):
            continue
        unknown = [s for s in _symbols(_value(node.args[0])) if s.name.startswith("u") and str(s) not in given]
        if unknown:
            raise Misjudged(f"{node.name} drops a dimension of size {unknown[0]} or keeps it, as the value is")


SQUEEZES = ("squeeze", "squeeze_", torch.squeeze)
"""By the name of a method, or the function itself, as Dynamo's graphs have them."""


def _value(node: fx.Node) -> Any:
    return node.meta.get("example_value")


def _symbols(value: Any) -> list[Any]:
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return [symbol for n in sizes if isinstance(n, torch.SymInt) for symbol in n.node.expr.free_symbols]
