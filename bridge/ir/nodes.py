"""What a node is, for everybody who walks a graph: whether it computes, what it is called, what goes in and out."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from bridge.ir.schema import call_arguments

aten = torch.ops.aten

SIZE_QUERIES = frozenset(
    {aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default}
)
"""Overloads that read a size of a tensor and touch none of its data."""

READS = frozenset({aten._local_scalar_dense.default})
"""What computes nothing and gives a number in a tensor to Python."""


def computes(node: fx.Node) -> bool:
    """Whether a backend has to run this node: it is no placeholder, constant, output, pick from a tuple or size."""
    if node.op != "call_function" or node.target in SIZE_QUERIES:
        return False
    return isinstance(node.target, torch._ops.OpOverload) or is_higher_order(node.target)


def is_higher_order(target: Any) -> bool:
    """Whether a call's target is an op over graphs: `cond`, `scan`."""
    return getattr(torch.ops.higher_order, getattr(target, "__name__", ""), None) is target


def op_name(node: fx.Node) -> str:
    """The overload's name as a user writes it, "aten.sort.default"; a higher-order op's own name, "cond"."""
    return str(node.target)


def is_random(node: fx.Node) -> bool:
    """Whether the node's op can draw from a random number generator, so that its place in program order matters."""
    target: Any = node.target
    if is_higher_order(target):
        return "rng_state" in target.name()
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def draws(node: fx.Node) -> bool:
    """Whether this very call draws: attention is a random op, and without dropout it leaves the generator alone."""
    if not is_random(node):
        return False
    return not isinstance(node.target, torch._ops.OpOverload) or call_arguments(node).get("dropout_p") != 0


def input_tensors(node: fx.Node) -> list[torch.Tensor]:
    """The fake tensors that the node reads, in the order of its arguments, each source once."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def shapes_and_dtypes(tensors: list[torch.Tensor]) -> tuple[tuple[tuple[int | str, ...], ...], tuple[str, ...]]:
    """Sizes and dtypes as an event keeps them: a symbolic size is given by its name."""
    shapes = tuple(tuple(_size(size) for size in tensor.shape) for tensor in tensors)
    return shapes, tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)


def _size(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size)
