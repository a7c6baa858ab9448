"""Trees of containers are taken apart and mapped as torch's own functions do it."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch
from torch.utils import _pytree

from bridge.ir.trees import tree_leaves, tree_map

Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "tree",
    [1, None, (), [], {}, (1, [2, {"x": 3}], None), Pair(1, [2]), OrderedDict(b=1, a=[2]), torch.Size([2, 3])],
)
def test_trees_are_as_torch_sees_them(tree: object) -> None:
    assert tree_leaves(tree) == _pytree.tree_leaves(tree)
    made, expected = (one(lambda value: f"<{value}>", tree) for one in (tree_map, _pytree.tree_map))
    assert made == expected
    assert type(made) is type(expected)
