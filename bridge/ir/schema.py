"""A call's arguments by the names of its ATen schema."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import fx
from torch._ops import OpOverload

REQUIRED = object()
"""Stands for the default of an argument that has none."""


@cache
def defaults(op: OpOverload) -> Mapping[str, Any]:
    """The default of each argument in the order of the schema, `REQUIRED` where there is none."""
    return {
        argument.name: argument.default_value if argument.has_default_value() else REQUIRED
        for argument in op._schema.arguments
    }


@cache
def numeric(op: OpOverload) -> Mapping[str, str]:
    """The arguments that hold numbers, optional or not: name -> "Tensor", "Tensors" (a list) or "Scalar"."""
    kinds = {}
    for argument in op._schema.arguments:
        declared = str(argument.real_type)
        if "Tensor" in declared:
            kinds[argument.name] = "Tensors" if declared.startswith("List") else "Tensor"
        elif declared in ("number", "Optional[number]"):
            kinds[argument.name] = "Scalar"
    return kinds


def call_arguments(node: fx.Node) -> dict[str, Any]:
    """Every argument of the node's call, defaults filled in, values as they stand in the graph (fx nodes included).

    Raises TypeError if the node does not call an overload.
    """
    if not isinstance(node.target, OpOverload):
        raise TypeError(f"{node.name} calls {node.target}, which has no ATen schema")
    arguments = dict(defaults(node.target))
    arguments.update(zip(arguments, node.args, strict=False))
    arguments.update(node.kwargs)
    return arguments
