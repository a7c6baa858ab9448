"""Joint graph → forward graph and backward graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from functorch.compile import default_partition, min_cut_rematerialization_partition

Split = Callable[..., tuple[Any, Any]]
"""What AOTAutograd splits a joint graph with: (module, joint inputs, *, num_fwd_outputs, …) → (forward, backward)."""

SPLITS: dict[str, Split] = {"min_cut": min_cut_rematerialization_partition, "default": default_partition}


def split_by(name: Literal["min_cut", "default"]) -> Split:
    """The split that an option names: "min_cut" recomputes cheap values in the backward, "default" saves them all."""
    return SPLITS[name]
