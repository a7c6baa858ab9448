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


def root_of(node: fx.Node) -> fx.Node:
    """The node at the end of a chain of views, which is none itself; any other node itself."""
    while is_view(node):
        node = base_of(node)
    return node


def shows(node: fx.Node, root: fx.Node) -> bool:
    """Whether sizes, strides and offset are all that tells a view from what it is a view of."""
    view, whole = node.meta["val"], root.meta["val"]
    plain = all(isinstance(v, torch.Tensor) and v.layout == torch.strided for v in (view, whole))
    return plain and view.dtype == whole.dtype and view.is_conj() == whole.is_conj() and view.is_neg() == whole.is_neg()


def lies_alike(node: fx.Node, root: fx.Node) -> bool:
    """Whether a view shows all of its root, as it is."""
    view, whole = node.meta["val"], root.meta["val"]
    mine = (*view.shape, *view.stride(), view.storage_offset())
    return all(isinstance(n, int) for n in mine) and mine == (*whole.shape, *whole.stride(), whole.storage_offset())
