"""Lay images out with their channels side by side where convolutions want them so, and what lies between these too.

Only a layout is another one than at capture, of what is computed element by element, of pools, and of views that are
told by places and not by strides. What a graph is given and what it gives stay as they are, and so does what a random
op is given on a CPU, which draws in the order of memory.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from bridge.ir.convolutions import CONVOLUTIONS, is_of_images
from bridge.ir.joint import Graph, Phase, rewritten
from bridge.ir.nodes import draws
from bridge.ir.schema import call_arguments
from bridge.ir.shapes import fake
from bridge.ir.views import is_view
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node
from bridge.passes.image_layouts import gains, images_of, wants_channels_last

aten = torch.ops.aten

FOLLOW = frozenset({
    aten._batch_norm_with_update_functional.default, aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default, aten._to_copy.default, aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool2d_backward.default, aten.avg_pool2d.default, aten.avg_pool2d_backward.default,
    aten.cat.default, aten.clone.default, aten.constant_pad_nd.default,
    aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default,
    aten.native_batch_norm.default, aten.native_batch_norm_backward.default, aten.native_dropout.default,
    aten.native_dropout_backward.default, aten.threshold_backward.default,
})  # fmt: skip
"""What gives images that lie as those it is given, besides what works element by element."""

BY_PLACE = frozenset({
    aten._unsafe_view.default, aten.alias.default, aten.detach.default, aten.expand.default, aten.permute.default,
    aten.select.int, aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.unbind.int, aten.unsqueeze.default, aten.view.default,
})  # fmt: skip
"""Views that show the same elements however these lie, if there is such a view at all."""

BY_MEMORY = frozenset({
    aten.as_strided_copy.default, aten.as_strided_scatter.default, aten.view_copy.default, aten._reshape_copy.default,
})  # fmt: skip
"""What computes something else, or nothing, of what lies otherwise."""

LAST, CONTIGUOUS = torch.channels_last, {"memory_format": torch.contiguous_format}


def lay_out_images(graph: Graph, ledger: Ledger) -> Graph:
    """A whole step or an inference with its images by channels; a forward and a backward lie as their joint graph."""
    if graph.phase not in (Phase.STEP, Phase.INFERENCE) or not gains(graph.module):
        return graph
    return rewritten(graph, lay_out)


def lay_out(graph: fx.Graph) -> None:
    """Change the layout of a graph's images, in place."""
    _Layout(graph).change()


class _Layout:
    """last: the nodes whose images lie by channels. before: how what lies otherwise than at capture lay there."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._last: set[fx.Node] = set()
        self._before: dict[fx.Node, Any] = {}
        self._copies: dict[tuple[fx.Node, torch.memory_format], fx.Node] = {}

    def change(self) -> None:
        for node in list(self._graph.nodes):
            if node.op == "placeholder":
                self._given(node)
            elif is_of_images(node):
                self._convolution(node)
            elif is_view(node):
                self._view(node)
            elif node.target is operator.getitem:
                self._pick(node)
            elif node.op == "output" or _goes_by_memory(node) or self._draws(node):
                self._as_it_was(node)
            elif self._follows(node):
                self._lay(node)

    def _given(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dim() == 4 and _lies_by_channels(value):
            self._last.add(node)

    def _convolution(self, node: fx.Node) -> None:
        by_channels = wants_channels_last(node)
        for name in images_of(node):
            source = call_arguments(node)[name]
            if by_channels and not source.meta["val"].is_contiguous(memory_format=LAST):
                node.replace_input_with(source, self._copy(source, node))
            elif not by_channels and source in self._before:
                node.replace_input_with(source, self._as_at_capture(source, node))
        if by_channels:
            self._retold(node)
            self._last.add(node)

    def _copy(self, source: fx.Node, user: fx.Node) -> fx.Node:
        """An image or a weight by channels: made so, where nothing else reads it."""
        alone = all(one.target in CONVOLUTIONS for one in source.users)
        if alone and source.op == "call_function" and not is_view(source) and _is_elementwise(source):
            self._lay(source)
            return source
        if (source, LAST) not in self._copies:
            with self._graph.inserting_before(user):
                made = new_node(self._graph, source, aten.clone.default, (source,), {"memory_format": LAST})
            self._last.add(made)
            self._copies[source, LAST] = made
        return self._copies[source, LAST]

    def _follows(self, node: fx.Node) -> bool:
        """Whether a node gives an image that may lie as one of those that it is given."""
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.dim() != 4:
            return False
        if all(user.op == "output" for user in node.users) or not _is_elementwise(node):
            return False
        return any(source in self._last for source in node.all_input_nodes)

    def _draws(self, node: fx.Node) -> bool:
        """Whether a node draws in the order of memory. On a GPU the order is another one than eager's in any case."""
        return draws(node) and all(v.device.type == "cpu" for v in map(_value, node.all_input_nodes) if v is not None)

    def _view(self, node: fx.Node) -> None:
        """A view shows what it did of what lies otherwise, or of a copy where there is no such view."""
        sources = [source for source in node.all_input_nodes if source in self._before]
        if not sources:
            return
        if node.target is operator.getitem:
            self._told(node, self._before[sources[0]][node.args[1]], sources[0].meta["val"][node.args[1]])  # type: ignore[index]
        elif node.target not in BY_PLACE or not self._retold(node):
            self._as_it_was(node)

    def _pick(self, node: fx.Node) -> None:
        source, value = node.args[0], node.meta.get("val")
        assert isinstance(source, fx.Node)
        if not isinstance(value, torch.Tensor) or value.dim() != 4:
            return
        if source in self._before:  # a convolution's gradients, which lie as torch says
            self._told(node, value, source.meta["val"][node.args[1]])  # type: ignore[index]
        elif source.target in FOLLOW and any(one in self._last for one in source.all_input_nodes):
            self._lay(node)
            whole = list(source.meta["val"])
            whole[node.args[1]] = node.meta["val"]  # type: ignore[index,call-overload]
            source.meta["val"] = tuple(whole)

    def _lay(self, node: fx.Node) -> None:
        value = node.meta["val"]
        with value.fake_mode:
            self._told(node, value, torch.empty_like(value, memory_format=LAST))
        self._last.add(node)

    def _retold(self, node: fx.Node) -> bool:
        """Have torch say how a node's result lies, of what it is given as that lies. False where it has no such one."""
        try:
            value = node.target(*fake(list(node.args)), **fake(dict(node.kwargs)))  # type: ignore[operator]
        except (RuntimeError, ValueError):
            return False
        self._told(node, node.meta["val"], value)
        return True

    def _told(self, node: fx.Node, before: Any, value: Any) -> None:
        if _places(before) != _places(value):
            node.meta["val"], self._before[node] = value, before
        if isinstance(value, torch.Tensor) and value.dim() == 4 and _lies_by_channels(value):
            self._last.add(node)

    def _as_it_was(self, node: fx.Node) -> None:
        """Give a node what lies as at capture."""
        for source in node.all_input_nodes:
            if source in self._before:
                node.replace_input_with(source, self._as_at_capture(source, node))

    def _as_at_capture(self, source: fx.Node, user: fx.Node) -> fx.Node:
        """What lies as it did: a copy, or a view of one."""
        if (source, torch.contiguous_format) not in self._copies:
            if is_view(source):
                of = {base: self._as_at_capture(base, user) for base in source.all_input_nodes if base in self._before}
                args, kwargs = map_arg((source.args, source.kwargs), lambda base: of.get(base, base))
                target: Any = source.target
            else:
                target, args, kwargs = aten.clone.default, (source,), dict(CONTIGUOUS)
            with self._graph.inserting_before(user):
                made = new_node(self._graph, source, target, args, kwargs)
            made.meta["val"] = self._before[source]
            self._copies[source, torch.contiguous_format] = made
        return self._copies[source, torch.contiguous_format]


def _goes_by_memory(node: fx.Node) -> bool:
    """Whether how its arguments lie may tell what a node computes: of ops that are not ATen's, nobody knows."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    is_atens = isinstance(node.target, OpOverload) and node.target.namespace in ("aten", "prims")
    return not is_atens or node.target in BY_MEMORY


def _value(node: fx.Node) -> torch.Tensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def _places(value: Any) -> Any:
    """Where the elements of one or several tensors lie."""
    if isinstance(value, torch.Tensor):
        steps = [step for size, step in zip(value.shape, value.stride(), strict=True) if size != 1]
        return steps, value.storage_offset()
    return [_places(one) for one in value] if isinstance(value, tuple | list) else None


def _lies_by_channels(value: torch.Tensor) -> bool:
    return value.is_contiguous(memory_format=LAST) and not value.is_contiguous()


def _is_elementwise(node: fx.Node) -> bool:
    return node.target in FOLLOW or torch.Tag.pointwise in getattr(node.target, "tags", ())
