"""Joint graph → forward graph and backward graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal

from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from bridge.ir.nodes import is_random

Split = Callable[..., tuple[Any, Any]]
"""What AOTAutograd splits a joint graph with: (module, joint inputs, *, num_fwd_outputs, …) → (forward, backward)."""

SPLITS: dict[str, Split] = {"min_cut": min_cut_rematerialization_partition, "default": default_partition}


def split_by(name: Literal["min_cut", "default"]) -> Split:
    """The split that an option names: "min_cut" recomputes cheap values in the backward, "default" saves them all."""
    chosen = SPLITS[name]

    def split(module: fx.GraphModule, inputs: Any, **more: Any) -> tuple[Any, Any]:
        save_what_is_random(module)
        return chosen(module, inputs, **more)

    return split


def save_what_is_random(module: fx.GraphModule) -> None:
    """Inside a checkpoint, keep what a random op drew rather than draw it again.

    To draw it again, torch would save the generator's whole state, five kilobytes on a CPU, and set it back.
    """
    for node in module.graph.nodes:
        if is_random(node) and "recompute" in node.meta:
            picks = [user for user in node.users if user.target is operator.getitem]
            for kept in (node, *picks):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
