"""What depends on how often a mask holds, generated: a kernel counts, the number is read, the places are written.

For `library=False` alone: ATen finds places in less time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from bridge.ir.joint import Graph, rewritten
from bridge.ir.provenance import source_line
from bridge.ir.shapes import fake, is_size, new_symbols_of
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node, node_of

aten = torch.ops.aten


def count_places(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph, in which what gives as many elements as values say is a count, and as many places."""
    return rewritten(graph, _counts) if any(node.target in REWRITES for node in graph.nodes) else graph


def _counts(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        rewrite = REWRITES.get(node.target)
        if rewrite is not None and _can_be_told(graph, node):
            with graph.inserting_before(node):
                rewrite(graph, node)


def _nonzero(graph: fx.Graph, node: fx.Node) -> None:
    held = node.args[0]
    if fake(held).is_complex():
        held = new_node(graph, node, aten.ne.Scalar, (held, 0))
    _replace(graph, node, aten.nonzero_static.default, (held,), {"size": _counted(graph, node, held)})


def _masked_select(graph: fx.Graph, node: fx.Node) -> None:
    shape = torch.broadcast_shapes(*(fake(argument).shape for argument in node.args)) or (1,)
    if not all(isinstance(n, int) for n in shape):
        return
    given, mask = (new_node(graph, node, aten.expand.default, (argument, list(shape))) for argument in node.args)
    value = fake(node)
    size = _counted(graph, node, mask)
    with value.fake_mode:
        places = torch.empty((value.shape[0], len(shape)), dtype=torch.int64, device=value.device)
    found = node_of(graph, node, aten.nonzero_static.default, (mask,), {"size": size}, places)
    columns = [new_node(graph, node, aten.select.int, (found, 1, dim)) for dim in range(len(shape))]
    _replace(graph, node, aten.index.Tensor, (given, columns), {})


def _repeat_interleave(graph: fx.Graph, node: fx.Node) -> None:
    """The place of the first end that lies behind each position: ends are sums of the repeats up to theirs."""
    repeats, total = node.args[0], fake(node).shape[0]
    if not isinstance(fake(repeats).shape[0], int):
        return
    wide = new_node(graph, node, aten._to_copy.default, (repeats,), {"dtype": torch.int64})
    counts = new_node(graph, node, aten.all.default, (new_node(graph, node, aten.ge.Scalar, (wide, 0)),))
    _check(graph, node, counts, "repeats can not be negative")
    said = f"repeats do not add up to output_size={total}"
    size = _told(graph, node, new_node(graph, node, aten.sum.default, (wide,)), said)
    ends = new_node(graph, node, aten.cumsum.default, (wide, 0))
    device = fake(node).device
    with fake(node).fake_mode:
        counted = torch.empty((total,), dtype=torch.int64, device=device)
    positions = node_of(graph, node, aten.arange.start_step, (0, size, 1), {"device": device}, counted)
    places = {"right": True, "out_int32": fake(node).dtype == torch.int32}
    _replace(graph, node, aten.searchsorted.Tensor, (ends, positions), places)


REWRITES: Mapping[Any, Callable[[fx.Graph, fx.Node], None]] = {
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten.repeat_interleave.Tensor: _repeat_interleave,
}


def _counted(graph: fx.Graph, node: fx.Node, mask: Any) -> Any:
    """How often the mask holds, as `_told` gives it."""
    held = mask if fake(mask).dtype == torch.bool else new_node(graph, node, aten.ne.Scalar, (mask, 0))
    said = f"shape mismatch: {fake(node).shape[0]} values for a mask"
    return _told(graph, node, new_node(graph, node, aten.sum.default, (held,)), said)


def _told(graph: fx.Graph, node: fx.Node, count: fx.Node, said: str) -> Any:
    """The size that a 0-d tensor of int64 tells: the number read out of it, or a size that is known and then checked.

    said: what the check raises RuntimeError with.
    """
    size = fake(node).shape[0]
    if new_symbols_of(node):
        return node_of(graph, node, aten._local_scalar_dense.default, (count,), {}, size)
    known = _known(graph, node)
    _check(graph, node, new_node(graph, node, aten.eq.Scalar, (count, known)), said)
    return known


def _can_be_told(graph: fx.Graph, node: fx.Node) -> bool:
    """Not where the size is an expression that no node before this one computes."""
    return fake(node).shape[0].node.expr.is_symbol if new_symbols_of(node) else _known(graph, node) is not None


def _known(graph: fx.Graph, node: fx.Node) -> Any:
    """The size of the result as a number, or as a node before this one that computes it; None if there is neither."""
    size = fake(node).shape[0]
    if isinstance(size, int) or size.node.expr.is_number:  # what it is written into has told it
        return int(size)
    before = itertools.takewhile(lambda other: other is not node, graph.nodes)
    return next((other for other in before if _is(other, size)), None)


def _check(graph: fx.Graph, node: fx.Node, holds: fx.Node, said: str) -> None:
    """Raise RuntimeError where a 0-d tensor of bool does not hold, with the user's line."""
    line = source_line(node)
    node_of(graph, node, aten._assert_async.msg, (holds, f"{said}, at {line}" if line else said), {}, None)


def _is(node: fx.Node, size: Any) -> bool:
    """Whether a node computes this size."""
    return (
        is_size(node) and isinstance(node.meta["val"], torch.SymInt) and statically_known_true(node.meta["val"] == size)
    )


def _replace(graph: fx.Graph, node: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    node.replace_all_uses_with(node_of(graph, node, target, args, kwargs, fake(node)))
    graph.erase_node(node)
