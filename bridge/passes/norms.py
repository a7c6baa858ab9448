"""The result of a batch or group norm by its statistics: pointwise, so that a split can have it computed again.

A norm is not computed twice: to the min-cut its result is as dear as its sums, so it is saved, beside the input and the
statistics, which the backward of the norm needs anyway. Told by these, it costs a few flops wherever it is read.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from bridge.ir.schema import call_arguments

aten = torch.ops.aten

NORMS = frozenset(
    {
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit.no_stats,
        aten._batch_norm_with_update_functional.default,
        aten.native_group_norm.default,
    }
)
"""Overloads whose results begin with the normalised input, the mean and the inverse deviation."""

RESULT, MEAN, DEVIATION = range(3)

KEPT = ("stack_trace", "nn_module_stack", "fwd_nn_module_stack", "seq_nr", "recompute")
"""What the new nodes have in common with the norm: where they come from, and whether a checkpoint has them again."""


def tell_results_by_statistics(module: fx.GraphModule) -> None:
    """Write the result of each norm whose statistics the backward reads as pointwise ops of these, in its place."""
    for node in list(module.graph.nodes):
        picks = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        if node.target in NORMS and {RESULT, MEAN, DEVIATION} <= picks.keys() and _is_plain(node, picks):
            _rewrite(module.graph, node, picks)
    module.recompile()


def _is_plain(node: fx.Node, picks: dict[Any, fx.Node]) -> bool:
    """Whether all is of one type of a CPU that is computed in as it is, compact, of sizes that are numbers."""
    x = call_arguments(node)["input"].meta["val"]
    values = [x, *(picks[at].meta["val"] for at in (RESULT, MEAN, DEVIATION))]
    if any(v.dtype != x.dtype or v.device.type != "cpu" or v.layout != torch.strided for v in values):
        return False
    known = all(isinstance(size, int) and size for v in values for size in v.shape)  # without training there are none
    return known and x.dtype in (torch.float32, torch.float64) and all(v.is_contiguous() for v in values)


def _rewrite(graph: fx.Graph, node: fx.Node, picks: dict[Any, fx.Node]) -> None:
    given, result = call_arguments(node), picks[RESULT]
    shape = list(result.meta["val"].shape)
    grouped = [shape[0], given["group"], -1] if "group" in given else shape
    by_channel = [1, shape[1], *[1] * (len(shape) - 2)]
    of_statistics = [*grouped[:2], 1] if "group" in given else by_channel
    for at in (DEVIATION, MEAN, RESULT):
        node.append(picks[at])  # so that all that reads the result comes after the statistics
    last = picks[DEVIATION]

    def call(op: Any, *args: Any) -> fx.Node:
        nonlocal last
        with graph.inserting_after(last):
            last = graph.call_function(op, args)
        values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
        last.meta = {key: held for key, held in node.meta.items() if key in KEPT} | {"val": op(*values)}
        return last

    made = given["input"] if grouped == shape else call(aten.view.default, given["input"], grouped)
    for op, at in ((aten.sub.Tensor, MEAN), (aten.mul.Tensor, DEVIATION)):
        made = call(op, made, call(aten.view.default, picks[at], of_statistics))
    if grouped != shape:
        made = call(aten.view.default, made, shape)
    for op, name in ((aten.mul.Tensor, "weight"), (aten.add.Tensor, "bias")):
        if given[name] is not None:
            made = call(op, made, call(aten.view.default, given[name], by_channel))
    result.replace_all_uses_with(made)
    graph.erase_node(result)
