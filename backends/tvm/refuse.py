"""Which nodes TVM takes, and why not the others. Asked while partitioning; touches no TVM object."""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from bridge.backends.tvm.compat import DTYPES
from bridge.backends.tvm.serial import is_serial
from bridge.backends.tvm.table import table
from bridge.ir.backend import Refusal
from bridge.ir.nodes import is_higher_order
from bridge.ir.rows import asked, unsupported_argument
from bridge.ir.schema import call_arguments
from bridge.ir.shapes import is_size, leaves, new_symbols_of, real_symbols_of, symbols_of, tensors_of
from bridge.ledger import DeadEnd

OWN_NAMESPACES = ("aten", "prims")


CPU = torch.device("cpu")


def refusal(node: fx.Node, device: torch.device = CPU) -> Refusal | None:
    """Why TVM does not take a node, or None if it does. Picks from a tuple and size arithmetic are always taken.

    device: where the graph's kernels run.
    """
    if node.op != "call_function" or (is_size(node) and not reads_a_value(node)):
        return None
    if not isinstance(node.target, OpOverload):
        return of_no_overload(node)
    row = table().get(node.target)
    if row is None:
        return no_row(node.target)
    detail = unsupported_tensor(node)
    if detail:
        return coverage(detail, "dtype")
    detail = on_another_device(node, device)
    if detail:
        return coverage(detail, "device")
    if device.type == "cuda" and is_serial(row):
        detail = f"{row.op} is converted as loops in which one step follows another, no work for a GPU"
        return coverage(detail, "serial")
    arguments = call_arguments(node)
    try:
        detail = unsupported_argument(row.op, row.parameters, node, arguments) or asked(row.refuses, arguments)
    except GuardOnDataDependentSymNode as error:
        detail = f"{row.op} is converted by a size that depends on values: {error.cond}"
        return Refusal(DeadEnd.DYNAMIC_SHAPE, detail, "symbolic size")
    if detail:
        return coverage(detail, "row refuses")
    if new_symbols_of(node):
        return coverage(f"a size of the result of {row.op} depends on values", "dynamic output shape")
    numbers = real_symbols_of(node) | truths_of(node)
    if numbers:
        detail = f"{row.op} is given a number that was read out of a tensor ({', '.join(sorted(numbers))})"
        return Refusal(DeadEnd.DYNAMIC_SHAPE, detail, "number")
    symbols = symbols_of(node)
    if symbols and not row.symbolic:
        detail = f"{row.op} is not converted with symbolic sizes ({', '.join(sorted(symbols))})"
        return Refusal(DeadEnd.DYNAMIC_SHAPE, detail, "symbolic size")
    return None


def reads_a_value(node: fx.Node) -> bool:
    """Whether a number is read out of a tensor, as `item` does."""
    return isinstance(node.target, OpOverload) and torch.Tag.data_dependent_output in node.target.tags


def truths_of(node: fx.Node) -> set[str]:
    """The conditions that a node is given, of numbers that are known only when the program runs."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    return {str(value) for value in values if isinstance(value, torch.SymBool)}


def on_another_device(node: fx.Node, device: torch.device) -> str | None:
    """A tensor that the graph's kernels cannot reach. A 0-d one on the CPU beside those of a GPU is brought there."""
    made = {id(result) for result in leaves(node.meta.get("val"))}
    elsewhere = sorted({
        str(tensor.device)
        for tensor in tensors_of(node)
        if tensor.device != device and not (tensor.device == CPU and tensor.dim() == 0 and id(tensor) not in made)
    })  # fmt: skip
    where = "the CPU" if device == CPU else str(device)
    return f"tensors on {' and '.join(elsewhere)}, and kernels are built for {where}" if elsewhere else None


def coverage(detail: str, kind: str) -> Refusal:
    return Refusal(DeadEnd.COVERAGE, detail, kind)


def of_no_overload(node: fx.Node) -> Refusal | None:
    """Of what calls no ATen overload, only Python's own arithmetic and `getitem` are taken."""
    if is_higher_order(node.target):
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
