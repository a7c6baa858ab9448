"""Give matrix products of 16-bit floats on a GPU sizes that its library is quick with.

A row of a matrix that is no multiple of 16 bytes long keeps cuBLAS from its best kernels: a vocabulary of 50 257 words
makes a product four times as long as one of 50 264. So the operands are padded with zeros, and the result is cut.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from bridge.ir.joint import Graph, rewritten
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node

aten = torch.ops.aten

MULTIPLE = 8
"""Elements of 16 bits in 16 bytes."""

WORTH = 256
"""Operations for each element that is written anew, from which on the product gains more than padding costs."""


def align_products(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph with padded products; as it is where no product is too short."""
    return rewritten(graph, _pad) if any(_gains(node) for node in graph.nodes) else graph


def _pad(graph: fx.Graph) -> None:
    padded: dict[tuple[fx.Node, int, int], fx.Node] = {}
    for node in list(graph.nodes):
        if _gains(node):
            with graph.inserting_before(node):
                node.replace_all_uses_with(_product(graph, node, padded))
            graph.erase_node(node)


def _factors(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    left, right = node.args[-2:]
    return left, right  # type: ignore[return-value]


def _gains(node: fx.Node) -> bool:
    if node.target is not aten.mm.default and not (node.target is aten.addmm.default and _adds_a_row(node)):
        return False
    left, right = (source.meta["val"] for source in _factors(node))
    sizes = (*left.shape, right.shape[1])
    if left.device.type != "cuda" or left.element_size() != 2 or not all(isinstance(n, int) for n in sizes):
        return False
    rows, inner, columns = sizes
    add = _missing(node)
    written = bool(add[0] or add[1]) * rows * inner + bool(add[1] or add[2]) * inner * columns
    written += bool(add[2]) * rows * columns
    return any(add) and rows * inner * columns > WORTH * written


def _adds_a_row(node: fx.Node) -> bool:
    """Whether a product is added to the same row everywhere."""
    return node.args[0].meta["val"].shape == node.meta["val"].shape[1:]  # type: ignore[union-attr]


def _missing(node: fx.Node) -> tuple[int, int, int]:
    """By how much rows, the inner size and columns are too short. Rows count where the left operand lies by columns."""
    left, right = (source.meta["val"] for source in _factors(node))
    rows = -left.shape[0] % MULTIPLE if left.stride(0) == 1 else 0
    return rows, -left.shape[1] % MULTIPLE, -right.shape[1] % MULTIPLE


def _product(graph: fx.Graph, node: fx.Node, padded: dict[tuple[fx.Node, int, int], fx.Node]) -> fx.Node:
    """The product of the padded operands, cut to size and laid out as the result was."""
    left, right = _factors(node)
    rows, inner, columns = _missing(node)
    operands: list[Any] = [
        _padded(graph, node, left, rows, inner, padded),
        _padded(graph, node, right, inner, columns, padded),
    ]
    if node.target is aten.addmm.default:
        row, beside = node.args[0], (node.args[0], [0, columns], 0.0)
        operands.insert(0, new_node(graph, node, aten.constant_pad_nd.default, beside) if columns else row)
    made = new_node(graph, node, node.target, tuple(operands), dict(node.kwargs))
    height, width = node.meta["val"].shape
    if rows:
        made = new_node(graph, node, aten.slice.Tensor, (made, 0, 0, height))
    if columns:
        made = new_node(graph, node, aten.slice.Tensor, (made, 1, 0, width))
        made = new_node(graph, node, aten.clone.default, (made,), {"memory_format": torch.contiguous_format})
    return made


def _padded(graph: fx.Graph, like: fx.Node, matrix: Any, rows: int, columns: int, padded: dict) -> fx.Node:
    """A matrix with zeros below and beside it. One that is a transposed view is padded before it is turned."""
    if not rows and not columns:
        return matrix
    if matrix.target is aten.permute.default and list(matrix.args[1]) == [1, 0]:
        turned = _padded(graph, like, matrix.args[0], columns, rows, padded)
        return new_node(graph, like, aten.permute.default, (turned, [1, 0]))
    key = (matrix, rows, columns)
    if key not in padded:
        padded[key] = new_node(graph, like, aten.constant_pad_nd.default, (matrix, [0, columns, 0, rows], 0.0))
    return padded[key]
