"""Write what AOTAutograd gives in fewer and plainer ops: no aliases that alias nothing, and dropout as mask × value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from bridge.ir.joint import Graph, rewritten
from bridge.ir.shapes import fake
from bridge.ir.views import root_of, shows
from bridge.ledger import Ledger

aten = torch.ops.aten


def canonicalise(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph in fewer kinds of node. Random ops keep their order and their place in the generator's stream."""
    return rewritten(graph, _in_fewer_kinds) if any(node.target in REWRITES for node in graph.nodes) else graph


def _in_fewer_kinds(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        rewrite = REWRITES.get(node.target)
        if rewrite is not None:
            rewrite(graph, node)


def drop_alias(graph: fx.Graph, node: fx.Node) -> None:
    """Readers of an alias read what it aliases. An alias that leaves the graph stays: its identity is the caller's."""
    _bypass(graph, node, lambda user: user.op != "output")


def drop_copy_of_constant(graph: fx.Graph, node: fx.Node) -> None:
    """Readers that give fresh memory read the constant itself; a view of it would let the user write into it."""
    _bypass(graph, node, _gives_fresh_memory)


def _bypass(graph: fx.Graph, node: fx.Node, may: Callable[[fx.Node], bool]) -> None:
    source = node.args[0]
    assert isinstance(source, fx.Node), f"{node.target} reads a node"
    node.replace_all_uses_with(source, delete_user_cb=may)
    if not node.users:
        graph.erase_node(node)


def _gives_fresh_memory(user: fx.Node) -> bool:
    target = user.target
    return isinstance(target, torch._ops.OpOverload) and not any(a.alias_info for a in target._schema.arguments)


def view_of_root(graph: fx.Graph, node: fx.Node) -> None:
    """A view by strides is one of the memory, whatever view it is asked of: it is taken of the tensor that has it."""
    source, size, stride = node.args[:3]
    assert isinstance(source, fx.Node), "as_strided reads a node"
    root = root_of(source)
    if root is not source and shows(source, root):
        whole, view = root.meta["val"], node.meta["val"]
        start = view.storage_offset() if whole.storage_offset() == 0 else None
        if isinstance(start, int):
            node.args = (root, size, stride, start)


def keep_in_tensor(graph: fx.Graph, node: fx.Node) -> None:
    """A tensor of a number that was read out of a tensor is that tensor, as float64 holds it: Python has no other."""
    number = node.args[0]
    if not isinstance(number, fx.Node) or number.target is not aten._local_scalar_dense.default:
        return
    source, value = number.args[0], node.meta["val"]
    if not fake(source).is_floating_point():
        return
    with graph.inserting_before(node):
        wide = new_node(graph, node, aten._to_copy.default, (source,), {"dtype": torch.float64})
        single = new_node(graph, node, aten.view.default, (wide, []))
        made = new_node(graph, node, aten._to_copy.default, (single,), {"dtype": value.dtype, "device": value.device})
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    if not number.users:
        graph.erase_node(number)


def split_dropout(graph: fx.Graph, node: fx.Node) -> None:
    """native_dropout(x, p, True) → mask = bernoulli(1 - p); x · mask · 1 / (1 - p).

    Only the mask is random, so only the mask is drawn by torch: bit for bit eager's, the generator's state included.
    """
    x, p, train = node.args
    value, mask = node.meta["val"]
    order = memory_order(mask)
    picks = {user.args[1]: user for user in node.users}
    if mask.device.type != "cpu":
        return  # a GPU draws the mask in the kernel that applies it, and from other numbers than `bernoulli` does
    if train is False or order is None or any(user.target is not operator.getitem for user in node.users):
        return
    with graph.inserting_before(node):
        drawn = _none_kept(graph, node) if p == 1 else _draw(graph, node, order, 1.0 - float(p))  # type: ignore[arg-type]
        if 1 in picks:
            picks[1].replace_all_uses_with(drawn)
        if 0 in picks:
            kept = new_node(graph, node, aten.mul.Tensor, (x, drawn))
            scaled = new_node(graph, node, aten.mul.Tensor, (kept, _scale(float(p), value.dtype)))  # type: ignore[arg-type]
            picks[0].replace_all_uses_with(scaled)
    for pick in picks.values():
        graph.erase_node(pick)
    graph.erase_node(node)


def _draw(graph: fx.Graph, node: fx.Node, order: list[int], probability: float) -> fx.Node:
    """The mask. ATen fills a mask in the order of its memory, but `bernoulli.p` gives plain contiguous memory."""
    x = node.args[0]
    permuted = order != sorted(order)
    if permuted:
        x = new_node(graph, node, aten.permute.default, (x, order))
    layout = {"dtype": torch.bool, "memory_format": torch.contiguous_format}
    empty = new_node(graph, node, aten.empty_like.default, (x,), layout)
    mask = new_node(graph, node, aten.bernoulli.p, (empty, probability))
    back = [order.index(dim) for dim in range(len(order))]
    return new_node(graph, node, aten.permute.default, (mask, back)) if permuted else mask


def _none_kept(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Where everything is dropped, `dropout` draws no numbers; only `native_dropout`, which nobody calls, would."""
    return new_node(graph, node, aten.zeros_like.default, (node.args[0],), {"dtype": torch.bool})


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions of a dense tensor from the outermost to the innermost in memory; None where that is not known."""
    plain = list(range(tensor.dim()))
    if _dense_in(tensor, plain):
        return plain
    strides = tensor.stride()
    if not all(isinstance(stride, int) for stride in strides):
        return None
    order = sorted(plain, key=lambda dim: -strides[dim])
    return order if _dense_in(tensor, order) else None


def _dense_in(tensor: torch.Tensor, order: list[int]) -> bool:
    """Whether walking the dimensions in this order walks the memory without gaps."""
    expected: Any = 1
    for dim in reversed(order):
        if statically_known_true(tensor.shape[dim] == 1):
            continue
        if not statically_known_true(tensor.stride(dim) == expected):
            return False
        expected = expected * tensor.shape[dim]
    return True


def _scale(p: float, dtype: torch.dtype) -> float:
    """1 / (1 - p) as ATen's mask holds it, rounded to the type of the values."""
    return torch.tensor(0.0 if p == 1.0 else 1.0 / (1.0 - p), dtype=dtype).item()


def new_node(
    graph: fx.Graph, like: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> Any:
    """A node that stands in for (part of) another: same provenance, its own fake value."""
    return node_of(graph, like, target, args, kwargs or {}, target(*fake(list(args)), **(kwargs or {})))


def node_of(
    graph: fx.Graph, like: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
) -> fx.Node:
    """As `new_node`, of a fake value that is given: to ask for one whose size depends on values names a new size."""
    node = graph.call_function(target, args, kwargs)
    node.meta = {key: held for key, held in like.meta.items() if key not in ("val", "tensor_meta")}
    node.meta["val"] = value
    return node


REWRITES: dict[Any, Callable[[fx.Graph, fx.Node], None]] = {
    aten.alias.default: drop_alias,
    aten.as_strided.default: view_of_root,
    aten.detach.default: drop_alias,
    aten.lift_fresh_copy.default: drop_copy_of_constant,
    aten.native_dropout.default: split_dropout,
    aten.scalar_tensor.default: keep_in_tensor,
}
"""How a node of each kind is rewritten."""
