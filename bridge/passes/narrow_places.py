"""Keep where in its window the largest element lies, in a byte, rather than where in its image, in eight.

That is what a pooling saves for its backward, or a step for its second half. On a GPU, where a kernel computes the one
from the other while it waits for memory.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from bridge.ir.joint import Graph, Phase, rewritten
from bridge.ir.schema import call_arguments
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node

aten = torch.ops.aten

MOST = 127
"""Elements of the largest window."""


def narrow_places_of_step(graph: Graph, ledger: Ledger) -> Graph:
    """A whole step with narrow places; a forward and a backward have them from their joint graph."""
    return rewritten(graph, narrow_places) if graph.phase is Phase.STEP else graph


def narrow_places(graph: fx.Graph) -> None:
    """Narrow what only backwards of poolings read, in place."""
    for node in list(graph.nodes):
        if node.target is aten.max_pool2d_with_indices.default:
            picks = [user for user in node.users if user.target is operator.getitem and user.args[1] == 1]
            for places in picks:
                readers = list(places.users)
                if readers and all(map(_is_backward, readers)) and _is_fit(node, places.meta["val"]):
                    held = _Window(graph, node, places).wide()
                    for reader in readers:
                        reader.replace_input_with(places, held)
                        _forget_image(graph, reader)


def _is_backward(node: fx.Node) -> bool:
    return node.target is aten.max_pool2d_with_indices_backward.default


def _forget_image(graph: fx.Graph, reader: fx.Node) -> None:
    """Of the image that was pooled a backward reads the size alone, and need not have it kept."""
    image = reader.args[1]
    assert isinstance(image, fx.Node)
    value = image.meta["val"]
    kind = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    with graph.inserting_before(reader), value.fake_mode:
        blank = new_node(graph, reader, aten.full.default, (list(value.shape), 0.0), kind)
    reader.update_arg(1, blank)


def _is_fit(node: fx.Node, places: torch.Tensor) -> bool:
    sizes = [*places.shape, *node.args[0].meta["val"].shape]  # type: ignore[union-attr]
    rows, columns = _pair(call_arguments(node)["kernel_size"])
    return places.device.type == "cuda" and rows * columns <= MOST and all(isinstance(n, int) for n in sizes)


def _pair(numbers: Any) -> tuple[int, int]:
    first, *rest = [numbers] if isinstance(numbers, int) else numbers
    return first, rest[0] if rest else first


class _Window:
    """The nodes that lead from a place in an image to one in a window and back."""

    def __init__(self, graph: fx.Graph, pooling: fx.Node, places: fx.Node) -> None:
        self._graph, self._places = graph, places
        given = call_arguments(pooling)
        self._size = _pair(given["kernel_size"])
        self._stride = _pair(given["stride"] or given["kernel_size"])
        self._padding, self._dilation = _pair(given["padding"]), _pair(given["dilation"])
        self._width: int = pooling.args[0].meta["val"].shape[-1]  # type: ignore[union-attr]
        self._last = places

    def wide(self) -> fx.Node:
        """Where in its image each of the largest lies, told by where it lies in its window."""
        whole = self._as(self._places, torch.int32)
        rows = self._add(aten.floor_divide.Scalar, whole, self._width)
        columns = self._add(aten.sub.Tensor, whole, self._add(aten.mul.Tensor, rows, self._width))
        steps = [self._inside(place, dim) for dim, place in enumerate((rows, columns))]
        within = self._add(aten.add.Tensor, self._add(aten.mul.Tensor, steps[0], self._size[1]), steps[1])
        kept = self._as(within, torch.int8)
        within = self._as(kept, torch.int32)
        rows = self._add(aten.floor_divide.Scalar, within, self._size[1])
        columns = self._add(aten.sub.Tensor, within, self._add(aten.mul.Tensor, rows, self._size[1]))
        rows, columns = (self._outside(step, dim) for dim, step in enumerate((rows, columns)))
        whole = self._add(aten.add.Tensor, self._add(aten.mul.Tensor, rows, self._width), columns)
        return self._as(whole, torch.int64)

    def _inside(self, place: fx.Node, dim: int) -> fx.Node:
        """How many steps of a window lie before a place."""
        distance = self._add(aten.sub.Tensor, place, self._begins(dim))
        step = self._dilation[dim]
        return distance if step == 1 else self._add(aten.floor_divide.Scalar, distance, step)

    def _outside(self, step: fx.Node, dim: int) -> fx.Node:
        distance = step if self._dilation[dim] == 1 else self._add(aten.mul.Tensor, step, self._dilation[dim])
        return self._add(aten.add.Tensor, distance, self._begins(dim))

    def _begins(self, dim: int) -> fx.Node:
        """Where the windows begin along a dimension."""
        value, first, step = self._places.meta["val"], -self._padding[dim], self._stride[dim]
        count = value.shape[dim - 2]
        kind = {"dtype": torch.int32, "device": value.device, "pin_memory": False}
        begins = self._add(aten.arange.start_step, first, first + count * step, step, **kind)
        return begins if dim else self._add(aten.unsqueeze.default, begins, 1)

    def _as(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        return self._add(aten._to_copy.default, node, dtype=dtype)

    def _add(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        with self._graph.inserting_after(self._last), self._places.meta["val"].fake_mode:
            self._last = new_node(self._graph, self._places, target, args, kwargs)
        return self._last
