"""Attention masks that say what attention can be told without one, in a graph of Dynamo's.

The quick ways of attention take no mask, or one whose rows are contiguous; with any other one torch multiplies the
matrices one by one and keeps the weights, which for long sequences is most of a step's time and memory. A model that
is captured often makes the mask that eager leaves out, out of constants.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn import functional as F

ATTENTION = F.scaled_dot_product_attention
PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
MOST = 1 << 26
"""Elements of the largest mask that is looked at."""

FUNCTIONS: frozenset[Any] = frozenset(
    {torch.arange, torch.ones, torch.zeros, torch.full, torch.tril, torch.triu, operator.add, operator.sub,
     operator.mul, operator.neg, operator.ge, operator.gt, operator.le, operator.lt, operator.eq, operator.ne,
     operator.and_, operator.or_, operator.invert, operator.getitem}
)  # fmt: skip
METHODS = frozenset(
    {"expand", "unsqueeze", "view", "reshape", "to", "type", "bool", "float", "contiguous", "ge", "gt", "le", "lt",
     "eq", "ne", "add", "sub", "mul", "logical_and", "logical_or", "logical_not", "tril", "triu", "squeeze", "t",
     "transpose", "permute", "expand_as", "view_as", "repeat", "clone", "detach", "masked_fill"}
)  # fmt: skip
"""What masks are made with, and nothing that changes a tensor in place."""


def drop_masks(module: fx.GraphModule) -> None:
    """Take away masks of constants that let everything be seen, or what came before; make others contiguous.

    Not where attention drops out: each way of it draws otherwise, and a seed has to mean what it means in eager.
    """
    calls = [node for node in module.graph.nodes if node.target is ATTENTION]
    masked = [(node, mask) for node in calls if isinstance(mask := _argument(node, "attn_mask"), fx.Node)]
    if not masked:
        return
    values = Constants()
    for node, mask in masked:
        what = _meaning(values.of(mask)) if not _argument(node, "is_causal") else ""
        if what:
            _put(node, "attn_mask", None)
            _put(node, "is_causal", what == "causal")
        elif not _has_contiguous_rows(mask) and not _argument(node, "dropout_p"):
            with module.graph.inserting_before(node):
                _put(node, "attn_mask", module.graph.call_method("contiguous", (mask,)))
    module.recompile()


class Constants:
    """The tensors of nodes that read no input, each computed once."""

    def __init__(self) -> None:
        self._known: dict[fx.Node, Any] = {}

    def of(self, node: fx.Node) -> torch.Tensor | None:
        """The tensor, or None where it is not known before the graph runs, or is large."""
        value = node.meta.get("example_value")
        small = isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape)
        if not small or value.numel() > MOST or not self._is_known(node):  # type: ignore[union-attr]
            return None
        with unset_fake_temporarily(), torch.no_grad():
            return self._value(node)

    def _is_known(self, node: fx.Node) -> bool:
        """Whether the node and all before it only make, compare and shape tensors of constants."""
        pending, seen = [node], {node}
        while pending:
            one = pending.pop()
            if not _is_plain(one) or _is_changed(one):
                return False
            fresh = [source for source in one.all_input_nodes if source not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return True

    def _value(self, node: fx.Node) -> Any:
        if node not in self._known:
            args, kwargs = fx.map_arg((node.args, node.kwargs), self._value)  # type: ignore[arg-type]
            if node.op == "call_method":
                self._known[node] = getattr(args[0], node.target)(*args[1:], **kwargs)  # type: ignore[arg-type]
            else:
                self._known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return self._known[node]


def _is_plain(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in METHODS
    return node.op == "call_function" and node.target in FUNCTIONS


def _is_changed(node: fx.Node) -> bool:
    """Whether something may write into a tensor, or into what is made of it and may show its memory."""
    return any(_changes(user) or (_is_plain(user) and _is_changed(user)) for user in node.users)


def _changes(user: fx.Node) -> bool:
    """Whether a node may write into what it reads."""
    if user.op == "call_method":
        return str(user.target).endswith("_") and not str(user.target).endswith("__")
    if user.target in FUNCTIONS:
        return False
    name = getattr(user.target, "__name__", "")
    return user.target is operator.setitem or "out" in user.kwargs or name.endswith("_") or name in IN_PLACE


IN_PLACE = frozenset({f"i{name}" for name in ("add", "sub", "mul", "truediv", "and", "or", "xor")})


def _meaning(mask: torch.Tensor | None) -> str:
    """What a mask lets a query see: "all" keys, those up to its own ("causal"), or "" for something else."""
    if mask is None or mask.dim() < 2 or not mask.numel():
        return ""
    seen = mask if mask.dtype == torch.bool else mask == 0
    if bool(seen.all()):
        return "all"
    hidden = mask.dtype == torch.bool or bool((seen | (mask == -torch.inf)).all())
    square = mask.shape[-1] == mask.shape[-2] and hidden
    return "causal" if square and bool((seen == torch.ones_like(seen).tril()).all()) else ""


def _has_contiguous_rows(mask: fx.Node) -> bool:
    value = mask.meta.get("example_value")
    return not isinstance(value, torch.Tensor) or not value.dim() or value.stride(-1) == 1


def _argument(node: fx.Node, name: str) -> Any:
    at = PARAMETERS.index(name)
    return node.args[at] if at < len(node.args) else node.kwargs.get(name)


def _put(node: fx.Node, name: str, value: Any) -> None:
    at = PARAMETERS.index(name)
    if at < len(node.args):
        node.update_arg(at, value)
    else:
        node.update_kwarg(name, value)
