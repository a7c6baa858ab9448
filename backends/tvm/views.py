"""Nodes that are torch views: the program runs them as such where something outside of a kernel reads them."""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._ops import OpOverload

aten = torch.ops.aten


def is_view(node: fx.Node) -> bool:
    """Whether torch gives the node's result without a copy, by its schema; picks from several views count too."""
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and is_view(source)
    if not isinstance(node.target, OpOverload):
        return False
    if node.target is aten._unsafe_view.default:
        return True
    returns = node.target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def base_of(node: fx.Node) -> fx.Node:
    """The node whose memory a view shows."""
    source = node.args[0]
    assert isinstance(source, fx.Node), f"{node.name} is a view of no node"
    return base_of(source) if node.target is operator.getitem else source
