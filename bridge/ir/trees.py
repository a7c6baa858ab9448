"""Nested arguments and results: what they hold, and the same around other values. For all containers that torch knows.

Both are made of torch's two private functions for it, so that no more of its private names are stood on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._pytree import tree_flatten, tree_unflatten


def tree_leaves(tree: Any) -> list[Any]:
    """What a tree of containers holds, in order; None counts as held."""
    return tree_flatten(tree)[0]


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same containers around what the function gives for each value in them."""
    held, form = tree_flatten(tree)
    return tree_unflatten([function(value) for value in held], form)
