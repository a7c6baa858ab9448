"""Joint graph → forward graph and backward graph.

A joint graph is edited in place, node by node, and its code is left as it was: it is split, and never run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal

import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from bridge.ir.nodes import is_random
from bridge.ir.schema import call_arguments
from bridge.passes.image_layouts import gains
from bridge.passes.lay_out_images import lay_out
from bridge.passes.narrow_places import narrow_places
from bridge.passes.norms import tell_results_by_statistics

Split = Callable[..., tuple[Any, Any]]
"""What AOTAutograd splits a joint graph with: (module, joint inputs, *, num_fwd_outputs, …) → (forward, backward)."""

aten = torch.ops.aten

TRAINED_NORMS: dict[Any, int] = {
    aten._native_batch_norm_legit_functional.default: 3,
    aten._batch_norm_with_update_functional.default: 3,
}
"""Overloads that give new running statistics, and how many of their first results a norm without any gives too."""

SPLITS: dict[str, Split] = {"min_cut": min_cut_rematerialization_partition, "default": default_partition}


def split_by(name: Literal["min_cut", "default"], generated: bool = True) -> Split:
    """The split that an option names: "min_cut" recomputes cheap values in the backward, "default" saves them all.

    generated: whether kernels of ours are to come of the graphs; what ATen runs as it is stays as it is, to the bit.
    """
    chosen = SPLITS[name]

    def split(module: fx.GraphModule, inputs: Any, **more: Any) -> tuple[Any, Any]:
        save_what_is_random(module.graph)
        update_statistics_once(module.graph)
        if generated and name == "min_cut":
            tell_results_by_statistics(module.graph)
        return chosen(module, inputs, **more)

    return split


def laid_out(split: Split, library: bool) -> Split:
    """A split of a joint graph whose images and places lie as kernels of ours and a library's convolutions want them.

    library: whether convolutions are a library's, which tells how images lie.
    """

    def chosen(module: fx.GraphModule, inputs: Any, **more: Any) -> tuple[Any, Any]:
        if library and gains(module):
            lay_out(module.graph)
        narrow_places(module.graph)
        module.graph.lint()
        return split(module, inputs, **more)

    return chosen


def save_what_is_random(graph: fx.Graph) -> None:
    """Inside a checkpoint, keep what a random op drew rather than draw it again.

    To draw it again, torch would save the generator's whole state, five kilobytes on a CPU, and set it back.
    """
    for node in graph.nodes:
        if is_random(node) and "recompute" in node.meta:
            picks = [user for user in node.users if user.target is operator.getitem]
            for kept in (node, *picks):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def update_statistics_once(graph: fx.Graph) -> None:
    """Inside a checkpoint, have the backward recompute a batch norm without its running statistics.

    The forward changes them, so that what the backward would be given are no longer those that it asked for.
    """
    for node in list(graph.nodes):
        place = TRAINED_NORMS.get(node.target)
        if place is None or "recompute" not in node.meta:
            continue
        given = call_arguments(node)
        if not given.get("training", True):
            continue
        with graph.inserting_before(node):
            x, weight, bias, momentum, eps = (given[n] for n in ("input", "weight", "bias", "momentum", "eps"))
            again = graph.call_function(aten._native_batch_norm_legit.no_stats, (x, weight, bias, True, momentum, eps))
        again.meta = {**node.meta, "val": tuple(node.meta["val"])[:3]}
        for pick in [user for user in node.users if user.args[1] < place]:
            pick.update_arg(0, again)
        for kept in (node, *node.users):
            kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
