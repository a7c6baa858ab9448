"""Ask for the gradient of a convolution's weight apart from the others, where a library on a CPU is slow at it.

That of a depthwise convolution becomes a kernel, if it has many taps or few places. That of a large weight at few
places is the product of the result's gradient and the patches of the image that the weight was laid on. The bias's is
a sum then: of oneDNN, it costs the weight's.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from bridge.ir.convolutions import (
    asks_for_weight_alone,
    each,
    is_slow_at_few_places,
    is_slow_depthwise,
    replace_gradients,
)  # fmt: skip
from bridge.ir.joint import Graph, rewritten
from bridge.ir.schema import call_arguments
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node, node_of

aten = torch.ops.aten

IMAGE, WEIGHT = 0, 1

BY_PLACES = {"memory_format": torch.contiguous_format}


def part_gradients(graph: Graph, ledger: Ledger) -> Graph:
    """The same graph with nodes of their own for such gradients; as it is where there is none."""
    return rewritten(graph, _asked_apart) if any(map(_parts, graph.nodes)) else graph


def _asked_apart(graph: fx.Graph) -> None:
    for node in [node for node in graph.nodes if _parts(node)]:
        with graph.inserting_before(node):
            _part(graph, node)
        graph.erase_node(node)


def _parts(node: fx.Node) -> bool:
    return is_slow_at_few_places(node) or (is_slow_depthwise(node) and not asks_for_weight_alone(node))


def _part(graph: fx.Graph, node: fx.Node) -> None:
    def alone(number: int) -> fx.Node:
        """Of the image or the weight, as the library or a kernel makes it; it lies as at capture."""
        asked = new_node(graph, node, node.target, (*node.args[:-1], [number == IMAGE, number == WEIGHT, False]))
        value = next(pick.meta["val"] for pick in node.users if pick.args[1] == number)
        return node_of(graph, node, operator.getitem, (asked, number), {}, value)

    def of_weight() -> fx.Node:
        return _by_patches(graph, node) if is_slow_at_few_places(node) else alone(WEIGHT)

    def of_bias() -> fx.Node:
        return new_node(graph, node, aten.sum.dim_IntList, (call_arguments(node)["grad_output"], [0, 2, 3]))

    replace_gradients(node, (lambda: alone(IMAGE), of_weight, of_bias))


def _by_patches(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """The weight's gradient: (channels out, places) times (places, channels in and taps)."""
    given = call_arguments(node)

    def new(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        return new_node(graph, node, target, args, kwargs)

    shape = list(given["weight"].meta["val"].shape)
    patches, (above, beside) = given["input"], each(given["padding"], 2)
    if above or beside:
        patches = new(aten.constant_pad_nd.default, patches, [beside, beside, above, above], 0.0)
    for dim, step, apart in zip((2, 3), each(given["stride"], 2), each(given["dilation"], 2), strict=True):
        patches = new(aten.unfold.default, patches, dim, (shape[dim] - 1) * apart + 1, step)
        if apart != 1:
            patches = new(aten.slice.Tensor, patches, -1, 0, 1 << 62, apart)
    batch, _, height, width = given["grad_output"].meta["val"].shape
    places = batch * height * width
    patches = new(aten.permute.default, patches, [0, 2, 3, 1, 4, 5])
    patches = new(
        aten.view.default, new(aten.clone.default, patches, **BY_PLACES), [places, shape[1] * shape[2] * shape[3]]
    )
    gradient = new(aten.clone.default, new(aten.permute.default, given["grad_output"], [1, 0, 2, 3]), **BY_PLACES)
    product = new(aten.mm.default, new(aten.view.default, gradient, [shape[0], places]), patches)
    found = new(aten.view.default, product, shape)
    lies_alike = found.meta["val"].stride() == node.meta["val"][WEIGHT].stride()
    return found if lies_alike else new(aten.clone.default, found, memory_format=torch.channels_last)
