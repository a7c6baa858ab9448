"""Have small convolutions on a CPU read images with a border of zeros, so that kernels run along whole rows.

A kernel that asks of each number whether it lies in the image takes them one by one. Without the question it takes 15
µs for 300 thousand multiplications, where the library's call takes 50 and more: in three dimensions 22 µs, not 250.
The gradient of the image is such a convolution too, with the weight turned around, and so is a transposed one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from bridge.ir.convolutions import (
    SMALL,
    WEIGHT_ALONE,
    each,
    has_lanes,
    is_quick,
    replace_gradients,
    slides_by_one,
    tensors_of_convolution,
)  # fmt: skip
from bridge.ir.joint import Graph, rewritten
from bridge.ir.schema import call_arguments
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node

aten = torch.ops.aten


def pad_convolutions(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph with such convolutions without padding; as it is where there is none."""
    return rewritten(graph, _pad) if any(map(_pads, graph.nodes)) else graph


def _pad(graph: fx.Graph) -> None:
    for node in [node for node in graph.nodes if _pads(node)]:
        with graph.inserting_before(node):
            _Padded(graph, node).replace()
        graph.erase_node(node)


def _pads(node: fx.Node) -> bool:
    """Whether a node is a convolution, or its gradients, that a kernel is quicker at, on images and results."""
    if node.target not in (aten.convolution.default, aten.convolution_backward.default) or not slides_by_one(node):
        return False
    values = tensors_of_convolution(node)
    return all(is_quick(node, SMALL, name) and has_lanes(values[name]) for name in ("input", "grad_output"))


class _Padded:
    """Writes the nodes in place of a convolution, or of its gradients."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self._graph, self._node = graph, node
        self._given = call_arguments(node)
        dims = node.args[0].meta["val"].dim() - 2  # type: ignore[union-attr]
        self._padding, self._dilation = (each(self._given[name], dims) for name in ("padding", "dilation"))
        self._dims = dims

    def replace(self) -> None:
        if self._node.target is aten.convolution.default:
            image, bias = self._given["input"], self._given["bias"]
            self._node.replace_all_uses_with(self._convolved(image, self._given["transposed"], bias))
            return
        replace_gradients(self._node, (self._of_image, self._of_weight, self._of_bias))

    def _of_image(self) -> fx.Node:
        return self._convolved(self._given["grad_output"], not self._given["transposed"], None)

    def _of_weight(self) -> fx.Node:
        """What slides is the result's gradient, or a transposed convolution's image: that one is read with a border."""
        gradient, image = self._given["grad_output"], self._given["input"]
        if self._given["transposed"]:
            gradient, image = image, gradient
        image = self._with_border(image, self._padding)
        given = (gradient, image, self._given["weight"], None, *self._sliding(), WEIGHT_ALONE)
        return self._new(operator.getitem, self._new(aten.convolution_backward.default, *given), 1)

    def _of_bias(self) -> fx.Node:
        return self._new(aten.sum.dim_IntList, self._given["grad_output"], [0, *range(2, self._dims + 2)])

    def _convolved(self, image: fx.Node, turned: bool, bias: fx.Node | None) -> fx.Node:
        """An image, and the weight as it is or with its channels exchanged and its taps from the last to the first."""
        weight, border = self._given["weight"], self._padding
        if turned:
            taps = weight.meta["val"].shape[2:]
            border = [d * (k - 1) - p for d, k, p in zip(self._dilation, taps, border, strict=True)]
            space = range(2, self._dims + 2)
            weight = self._new(aten.flip.default, self._new(aten.permute.default, weight, [1, 0, *space]), [*space])
        image = self._with_border(image, border)
        return self._new(aten.convolution.default, image, weight, bias, *self._sliding())

    def _with_border(self, image: fx.Node, border: Sequence[int]) -> fx.Node:
        """With zeros on both sides, as many in each dimension; less of the image where a number is negative."""
        if not any(border):
            return image
        return self._new(aten.constant_pad_nd.default, image, [n for n in reversed(border) for _ in range(2)], 0.0)

    def _sliding(self) -> tuple[Any, ...]:
        ones, none = [1] * self._dims, [0] * self._dims
        return ones, none, self._dilation, False, none, 1

    def _new(self, target: Any, *args: Any) -> fx.Node:
        return new_node(self._graph, self._node, target, args)
