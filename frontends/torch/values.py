"""Fake values for the nodes that torch's split adds to a graph without saying what they give."""

from __future__ import annotations

from torch import fx

from bridge.ir.shapes import fake, leaves


def complete_values(module: fx.GraphModule) -> None:
    """Give each call of `module` that has no fake value one, by running it on the fake values of its arguments.

    The split does so where a random op is computed again in the backward: it saves the generator's state for it.
    """
    for node in module.graph.nodes:
        if node.op != "call_function" or "val" in node.meta:
            continue
        arguments, keywords = fake(list(node.args)), fake(dict(node.kwargs))
        modes = [value.fake_mode for value in leaves([arguments, keywords]) if hasattr(value, "fake_mode")]
        with modes[0]:
            node.meta["val"] = node.target(*arguments, **keywords)
