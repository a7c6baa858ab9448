"""A mask as an index written as the places where it holds: ATen finds these, and what is done there is generated."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import fx

from bridge.ir.joint import Graph, Phase, rewritten
from bridge.ir.shapes import fake
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node, node_of

aten = torch.ops.aten

READ = (aten.index.Tensor, aten._unsafe_index.Tensor)
WRITTEN = (aten.index_put.default, aten._unsafe_index_put.default)


def find_places(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph, in which one mask among the indices of an op is `nonzero` of it, a column for each dimension.

    Not where as many values are written as values say, but for the mask's own: one of them would be written everywhere.
    A backward writes as many as its forward has read. The program checks that there are as many places as values.
    """
    if not any(_mask_of(node) is not None for node in graph.nodes):
        return graph
    return rewritten(graph, partial(_find, is_backward=graph.phase is Phase.BACKWARD))


def _find(graph: fx.Graph, is_backward: bool) -> None:
    known: dict[tuple[fx.Node, str], list[fx.Node]] = {}
    for node in list(graph.nodes):
        place = _mask_of(node)
        if place is None:
            continue
        indices = list(node.args[1])
        mask, size = indices[place], _number_of(node, place)
        told = (mask, str(size)) in known or is_backward
        if node.target in WRITTEN and _depends_on_values(size) and not told:
            continue
        with graph.inserting_before(node):
            if (mask, str(size)) not in known:
                known[mask, str(size)] = _columns(graph, node, mask, size)
            node.update_arg(1, [*indices[:place], *known[mask, str(size)], *indices[place + 1 :]])


def _mask_of(node: fx.Node) -> int | None:
    """Where among the indices of a node its mask is, if there is one mask and no other index beside it."""
    if node.op != "call_function" or node.target not in (*READ, *WRITTEN):
        return None
    given = [(place, index) for place, index in enumerate(node.args[1]) if index is not None]  # type: ignore[arg-type]
    if len(given) != 1 or not isinstance(given[0][1], fx.Node):
        return None
    place, index = given[0]
    value = fake(index)
    if value.dtype != torch.bool or not value.dim():
        return None
    return None if node.target in WRITTEN and _number_of(node, place) is None else place


def _number_of(node: fx.Node, place: int) -> Any:
    """How often the mask holds, as the sizes of what is read or written say; None where one value is written often."""
    if node.target in READ:
        return node.meta["val"].shape[place]
    written, values, mask = fake(node.args[0]), fake(node.args[2]), fake(node.args[1][place])  # type: ignore[index]
    at = values.dim() - 1 - (written.dim() - place - mask.dim())
    return values.shape[at] if at >= 0 and not _is_one(values.shape[at]) else None


def _depends_on_values(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and any(str(s).startswith("u") for s in size.node.expr.free_symbols)


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _columns(graph: fx.Graph, like: fx.Node, mask: fx.Node, size: Any) -> list[fx.Node]:
    """The places of a mask, an index for each of its dimensions. size: how many there are."""
    held = fake(mask)
    with held.fake_mode:
        places = torch.empty((held.dim(), size), dtype=torch.int64, device=held.device).t()
    found = node_of(graph, like, aten.nonzero.default, (mask,), {}, places)
    return [new_node(graph, like, aten.select.int, (found, 1, dim)) for dim in range(held.dim())]
