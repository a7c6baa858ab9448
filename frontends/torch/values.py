"""Fake values for the nodes that torch adds to a graph without saying what they give."""

from __future__ import annotations

from contextlib import nullcontext

from torch import fx
from torch._ops import OpOverload

from bridge.ir.shapes import fake, leaves


def complete_values(module: fx.GraphModule) -> None:
    """Give each call of `module` that has no fake value one, by running it on the fake values of its arguments.

    The split does so where a random op is computed again in the backward: it saves the generator's state for it.
    Assertions about sizes that depend on values, and arithmetic of such sizes, come without values too.
    """
    for node in module.graph.nodes:
        if node.op != "call_function" or "val" in node.meta:
            continue
        if isinstance(node.target, OpOverload) and not node.target._schema.returns:
            node.meta["val"] = None
            continue
        arguments, keywords = fake(list(node.args)), fake(dict(node.kwargs))
        modes = [value.fake_mode for value in leaves([arguments, keywords]) if hasattr(value, "fake_mode")]
        with modes[0] if modes else nullcontext():
            node.meta["val"] = node.target(*arguments, **keywords)
