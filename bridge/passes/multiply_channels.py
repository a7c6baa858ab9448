"""Run a convolution on a CPU that multiplies each place's channels with one matrix as a product of matrices.

The images are seen as one matrix of places and channels, without a copy where they lie by channels, or where there is
one image alone. Over 327 such convolutions of corpus models a product takes 0.43 of oneDNN's time where there are up to
a million multiplications, 0.8 up to ten millions, 0.9 above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from bridge.ir.convolutions import is_of_images, is_product, replace_gradients, tensors_of_convolution
from bridge.ir.joint import Graph, rewritten
from bridge.ir.schema import call_arguments
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node

aten = torch.ops.aten

TO_PLACES, TO_CHANNELS = [0, 2, 3, 1], [0, 3, 1, 2]


def multiply_channels(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph with products in place of such convolutions; as it is where there is none."""
    return rewritten(graph, _as_products) if any(_multiplies(node) for node in graph.nodes) else graph


def _as_products(graph: fx.Graph) -> None:
    for node in [node for node in graph.nodes if _multiplies(node)]:
        with graph.inserting_before(node):
            if node.target is aten.convolution.default:
                node.replace_all_uses_with(_Product(graph, node).result())
            else:
                product = _Product(graph, node)
                replace_gradients(node, (product.of_images, product.of_weight, product.of_bias))
        graph.erase_node(node)


def _multiplies(node: fx.Node) -> bool:
    if not is_of_images(node) or not is_product(node):
        return False
    values = tensors_of_convolution(node)
    weight = values["weight"]
    if weight.device.type != "cpu" or not weight.dtype.is_floating_point:
        return False
    if any(math.prod(value.shape) == 0 for value in values.values()):
        return False
    images = (values["input"], values["grad_output"])
    return all(map(_has_channels_last, images)) or all(
        value.shape[0] == 1 and value.is_contiguous() for value in images
    )


def _has_channels_last(value: torch.Tensor) -> bool:
    return value.is_contiguous(memory_format=torch.channels_last)


class _Product:
    """Writes the nodes in place of a convolution, or of its gradients."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self._graph, self._node = graph, node
        self._given = call_arguments(node)
        values = tensors_of_convolution(node)
        self._by_channels = all(_has_channels_last(values[name]) for name in ("input", "grad_output"))

    def result(self) -> fx.Node:
        x, weight, bias = self._matrix(self._given["input"]), self._weight(), self._given["bias"]
        if self._by_channels:
            factors = (x, self._turned(weight))
        else:
            factors, bias = (weight, x), bias and self._new(aten.unsqueeze.default, bias, 1)
        product = (
            self._new(aten.mm.default, *factors) if bias is None else self._new(aten.addmm.default, bias, *factors)
        )
        return self._image(product, self._node.meta["val"])

    def of_images(self) -> fx.Node:
        gradient, weight = self._matrix(self._given["grad_output"]), self._weight()
        factors = (gradient, weight) if self._by_channels else (self._turned(weight), gradient)
        return self._image(self._new(aten.mm.default, *factors), self._given["input"].meta["val"])

    def of_weight(self) -> fx.Node:
        gradient, x = (self._matrix(self._given[name]) for name in ("grad_output", "input"))
        factors = (self._turned(gradient), x) if self._by_channels else (gradient, self._turned(x))
        shape = list(self._given["weight"].meta["val"].shape)
        return self._new(aten.view.default, self._new(aten.mm.default, *factors), shape)

    def of_bias(self) -> fx.Node:
        return self._new(aten.sum.dim_IntList, self._given["grad_output"], [0, 2, 3])

    def _new(self, target: Callable[..., Any], *args: Any) -> fx.Node:
        return new_node(self._graph, self._node, target, args)

    def _turned(self, matrix: fx.Node) -> fx.Node:
        return self._new(aten.permute.default, matrix, [1, 0])

    def _weight(self) -> fx.Node:
        return self._new(aten.squeeze.dims, self._given["weight"], [2, 3])

    def _matrix(self, image: fx.Node) -> fx.Node:
        """An image as places times channels, or one without a batch as channels times places."""
        batch, channels, height, width = image.meta["val"].shape
        if not self._by_channels:
            return self._new(aten.view.default, image, [channels, height * width])
        places = self._new(aten.permute.default, image, TO_PLACES)
        return self._new(aten.view.default, places, [batch * height * width, channels])

    def _image(self, matrix: fx.Node, like: torch.Tensor) -> fx.Node:
        batch, channels, height, width = like.shape
        if not self._by_channels or like.is_contiguous():
            return self._new(aten.view.default, matrix, list(like.shape))
        places = self._new(aten.view.default, matrix, [batch, height, width, channels])
        return self._new(aten.permute.default, places, TO_CHANNELS)
