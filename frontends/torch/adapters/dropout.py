"""Dropout that drops nothing gives the very tensor that it is given; before torch 2.14 its tracing gives a copy."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F


def leave_out_inactive(module: fx.GraphModule) -> None:
    """Take dropout that drops nothing out of Dynamo's graph, where torch would copy and lose what is written to it."""
    if not _copies():
        return
    for node in list(module.graph.nodes):
        if node.target is F.dropout and not _drops(*node.args, **node.kwargs):
            node.replace_all_uses_with(node.args[0] if node.args else node.kwargs["input"])
            module.graph.erase_node(node)
    module.recompile()


def _drops(input: Any, p: Any = 0.5, training: Any = True, inplace: bool = False) -> bool:
    return training is not False and p != 0


@functools.cache
def _copies() -> bool:
    given = torch.empty(1)
    return torch.ops.aten.dropout.default.decompose(given, 0.5, False) is not given
