"""Which nodes TVM takes, and why not the others. Asked while partitioning; touches no TVM object."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from bridge.backends.tvm.compat import DTYPES
from bridge.backends.tvm.table import Conversion, schema_names, table
from bridge.ir.backend import Refusal
from bridge.ir.schema import REQUIRED, call_arguments, defaults
from bridge.ir.shapes import fake, is_size, symbols_of, tensors_of
from bridge.ledger import DeadEnd

OWN_NAMESPACES = ("aten", "prims")


def refusal(node: fx.Node) -> Refusal | None:
    """Why TVM does not take a node, or None if it does. Picks from a tuple and size arithmetic are always taken."""
    if node.op != "call_function" or is_size(node):
        return None
    if not isinstance(node.target, OpOverload):
        return of_no_overload(node)
    row = table().get(node.target)
    if row is None:
        return no_row(node.target)
    detail = unsupported_tensor(node)
    if detail:
        return coverage(detail, "dtype")
    elsewhere = sorted({str(tensor.device) for tensor in tensors_of(node) if tensor.device.type != "cpu"})
    if elsewhere:
        return coverage(f"tensors on {' and '.join(elsewhere)}, and kernels are built for the CPU", "device")
    arguments = call_arguments(node)
    detail = unsupported_argument(row, node, arguments) or asked(row, arguments)
    if detail:
        return coverage(detail, "row refuses")
    symbols = symbols_of(node)
    if symbols and not row.symbolic:
        detail = f"{row.op} is not converted with symbolic sizes ({', '.join(sorted(symbols))})"
        return Refusal(DeadEnd.DYNAMIC_SHAPE, detail, "symbolic size")
    return None


def coverage(detail: str, kind: str) -> Refusal:
    return Refusal(DeadEnd.COVERAGE, detail, kind)


def of_no_overload(node: fx.Node) -> Refusal | None:
    """Of what calls no ATen overload, only Python's own arithmetic and `getitem` are taken."""
    if isinstance(node.target, HigherOrderOperator):
        return coverage(f"{node.target} is a higher-order op", "higher-order op")
    if getattr(node.target, "__module__", "") == "_operator":
        return None
    return coverage(f"{node.target} is no ATen overload", "no row")


def no_row(op: OpOverload) -> Refusal:
    if op.namespace not in OWN_NAMESPACES:
        return coverage(f"{op} is a custom op of {op.namespace}", "custom op")
    if torch.Tag.dynamic_output_shape in op.tags or torch.Tag.data_dependent_output in op.tags:
        return coverage(f"the result of {op} depends on values, not on sizes alone", "dynamic output shape")
    if torch.Tag.nondeterministic_seeded in op.tags:
        return coverage(f"{op} draws random numbers, which torch does so that seeds keep their meaning", "random")
    return coverage(f"no conversion for {op}", "no row")


def unsupported_tensor(node: fx.Node) -> str | None:
    """A tensor of a type or layout that kernels cannot hold."""
    for tensor in tensors_of(node):
        if tensor.layout != torch.strided:
            return f"{tensor.layout} tensors are not supported"
        if tensor.dtype not in DTYPES:
            return f"{tensor.dtype} is not supported"
    return None


def unsupported_argument(row: Conversion, node: fx.Node, arguments: dict[str, Any]) -> str | None:
    """An argument that the row does not name, and that has another value than its default."""
    for name, default in defaults(row.op).items():
        value = arguments[name]
        if name in row.parameters or same(value, default):
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


def asked(row: Conversion, arguments: dict[str, Any]) -> str | None:
    """What the row's own rule says of a call."""
    if row.refuses is None:
        return None
    return row.refuses(*(fake(arguments[name]) for name in wanted(row.refuses)))


@cache
def wanted(rule: Callable[..., str | None]) -> tuple[str, ...]:
    return tuple(schema_names(rule))
