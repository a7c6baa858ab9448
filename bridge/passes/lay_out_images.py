"""Lay images out with their channels side by side where they are convolved on a GPU, as its library wants them.

cuDNN's convolutions of 16-bit numbers, and of float32 in TF32, read and write channels side by side, and turn around
what lies otherwise. So between convolutions, and what else is done to images element by element, all lies that way:
only a layout is another one than at capture. What a graph is given and what it gives stay as they are.
"""

from __future__ import annotations

import operator
from dataclasses import replace

import torch
from torch import fx

from bridge.ir.joint import Graph, Phase, copied
from bridge.ir.schema import call_arguments
from bridge.ir.views import is_view
from bridge.ledger import Ledger
from bridge.passes.canonicalise import new_node

aten = torch.ops.aten

CHANNELS = 16
"""Channels that a convolution has on both sides at least, for its work to count for the layout."""

FOLLOW = frozenset({
    aten._batch_norm_with_update_functional.default, aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default, aten._to_copy.default, aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool2d_backward.default, aten.avg_pool2d.default, aten.avg_pool2d_backward.default,
    aten.clone.default, aten.detach.default, aten.alias.default, aten.max_pool2d_with_indices.default,
    aten.max_pool2d_with_indices_backward.default, aten.native_batch_norm.default,
    aten.native_batch_norm_backward.default, aten.native_dropout.default, aten.native_dropout_backward.default,
    aten.threshold_backward.default,
})  # fmt: skip
"""What gives images that lie as those it is given, besides what works element by element."""

CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)

LAST, CONTIGUOUS = torch.channels_last, {"memory_format": torch.contiguous_format}


def lay_out_images(graph: Graph, ledger: Ledger) -> Graph:
    """A whole step or an inference with its images by channels; a forward and a backward lie as their joint graph."""
    if graph.phase not in (Phase.STEP, Phase.INFERENCE) or not gains(graph.module):
        return graph
    module = copied(graph.module)
    lay_out(module)
    return replace(graph, module=module)


def gains(module: fx.GraphModule) -> bool:
    """Whether most of the work of convolutions is such that the library wants channels side by side."""
    work = {node: _work(node) for node in module.graph.nodes if node.target is aten.convolution.default}
    wanted = sum(count for node, count in work.items() if _is_wide(node))
    return 2 * wanted > sum(work.values()) > 0


def lay_out(module: fx.GraphModule) -> None:
    """Change the layout of a module's images, in place."""
    _Layout(module).change()


def _work(node: fx.Node) -> int:
    """Multiplications of a convolution whose sizes are numbers; others are not laid out anew."""
    weight, result = call_arguments(node)["weight"].meta["val"], node.meta["val"]
    sizes = [*result.shape, *weight.shape[1:]]
    return torch.Size(sizes).numel() if all(isinstance(n, int) for n in sizes) else 1 << 62


def _is_wide(node: fx.Node) -> bool:
    given, result = call_arguments(node), node.meta["val"]
    weight = given["weight"].meta["val"]
    if result.device.type != "cuda" or result.dim() != 4 or given["groups"] != 1 or given["transposed"]:
        return False
    if result.dtype not in (torch.bfloat16, torch.float16) and not _is_tf32(result.dtype):
        return False
    return all(isinstance(n, int) for n in result.shape) and min(weight.shape[:2]) >= CHANNELS


def _is_tf32(dtype: torch.dtype) -> bool:
    return dtype == torch.float32 and torch.backends.cudnn.allow_tf32


class _Layout:
    """last: the nodes whose images lie by channels. before: how each of them lay at capture."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module, self._graph = module, module.graph
        self._last: set[fx.Node] = set()
        self._before: dict[fx.Node, torch.Tensor] = {}
        self._copies: dict[fx.Node, fx.Node] = {}

    def change(self) -> None:
        for node in list(self._graph.nodes):
            if node.target in CONVOLUTIONS and _is_of_images(node):
                self._convolution(node)
            elif node.target is operator.getitem:
                self._pick(node)
            elif self._follows(node):
                self._lay(node)
            elif is_view(node) or node.op == "output":
                self._as_it_was(node)
        self._graph.lint()
        self._module.recompile()

    def _convolution(self, node: fx.Node) -> None:
        for number, source in enumerate(node.args):
            if isinstance(source, fx.Node) and source.meta["val"].dim() == 4 and source not in self._last:
                node.update_arg(number, self._copy(source, node))
        if node.target is aten.convolution.default:
            self._lay(node)
        else:
            self._last.add(node)

    def _copy(self, source: fx.Node, user: fx.Node) -> fx.Node:
        """An image or a weight by channels: made so, where nothing else reads it."""
        alone = all(one.target in CONVOLUTIONS for one in source.users)
        if alone and source.op == "call_function" and not is_view(source) and _is_elementwise(source):
            self._lay(source)
            return source
        if source not in self._copies:
            with self._graph.inserting_before(user):
                made = new_node(self._graph, source, aten.clone.default, (source,), {"memory_format": LAST})
            self._last.add(made)
            self._copies[source] = made
        return self._copies[source]

    def _follows(self, node: fx.Node) -> bool:
        """Whether a node gives an image that may lie as one of those that it is given."""
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.dim() != 4:
            return False
        if all(user.op == "output" for user in node.users) or not _is_elementwise(node):
            return False
        return any(source in self._last for source in node.all_input_nodes)

    def _pick(self, node: fx.Node) -> None:
        source, value = node.args[0], node.meta.get("val")
        assert isinstance(source, fx.Node)
        if not isinstance(value, torch.Tensor) or value.dim() != 4:
            return
        of_image = source.target in FOLLOW and any(one in self._last for one in source.all_input_nodes)
        if source in self._last or of_image:
            self._lay(node)
            whole = list(source.meta["val"])
            whole[node.args[1]] = node.meta["val"]  # type: ignore[index,call-overload]
            source.meta["val"] = tuple(whole)

    def _lay(self, node: fx.Node) -> None:
        value = self._before[node] = node.meta["val"]
        with value.fake_mode:
            node.meta["val"] = torch.empty_like(value, memory_format=LAST)
        self._last.add(node)

    def _as_it_was(self, node: fx.Node) -> None:
        """Give a view, or whoever gets the results, what lies as at capture."""
        for source in node.all_input_nodes:
            before = self._before.get(source)
            if before is not None and before.stride() != source.meta["val"].stride():
                with self._graph.inserting_before(node):
                    made = new_node(self._graph, source, aten.clone.default, (source,), dict(CONTIGUOUS))
                made.meta["val"] = before
                node.replace_input_with(source, made)


def _is_of_images(node: fx.Node) -> bool:
    given = call_arguments(node)
    operands = [given[name].meta["val"] for name in ("input", "weight", "grad_output") if name in given]
    return all(value.dim() == 4 and all(isinstance(n, int) for n in value.shape) for value in operands)


def _is_elementwise(node: fx.Node) -> bool:
    return node.target in FOLLOW or torch.Tag.pointwise in getattr(node.target, "tags", ())
