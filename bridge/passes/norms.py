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

WIDE = {
    torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float32,
    torch.float64: torch.float64,
}  # fmt: skip
"""What a norm is computed in, by what it is given."""

KEPT = ("stack_trace", "nn_module_stack", "fwd_nn_module_stack", "seq_nr", "recompute")
"""What the new nodes have in common with the norm: where they come from, and whether a checkpoint has them again."""


def tell_results_by_statistics(graph: fx.Graph) -> None:
    """Write the result of each norm whose statistics the backward reads as pointwise ops of these, in its place."""
    for node in list(graph.nodes):
        picks = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        if node.target in NORMS and {RESULT, MEAN, DEVIATION} <= picks.keys() and _is_plain(node, picks):
            _rewrite(graph, node, picks)


def _is_plain(node: fx.Node, picks: dict[Any, fx.Node]) -> bool:
    """Whether all lies without gaps and its sizes are numbers, and on a CPU is of one type, computed in as it is."""
    given = call_arguments(node)
    x = given["input"].meta["val"]
    values = [x, *(picks[at].meta["val"] for at in (RESULT, MEAN, DEVIATION))]
    if any(v.device != x.device or v.layout != torch.strided for v in values):
        return False
    if not all(isinstance(size, int) and size for v in values for size in v.shape):  # without training there are none
        return False
    if x.device.type == "cuda" and "group" not in given:
        exact = x.dtype in WIDE and all(v.dtype == WIDE[x.dtype] for v in values[2:])
        return exact and values[1].stride() == x.stride() and all(map(_is_dense, values))
    alike = all(v.dtype == x.dtype and v.is_contiguous() for v in values)
    return x.device.type == "cpu" and alike and x.dtype in (torch.float32, torch.float64)


def _is_dense(value: torch.Tensor) -> bool:
    return value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))


def _rewrite(graph: fx.Graph, node: fx.Node, picks: dict[Any, fx.Node]) -> None:
    given, result = call_arguments(node), picks[RESULT]
    shape = list(result.meta["val"].shape)
    grouped = [shape[0], given["group"], -1] if "group" in given else shape
    by_channel = [1, shape[1], *[1] * (len(shape) - 2)]
    of_statistics = [*grouped[:2], 1] if "group" in given else by_channel
    for at in (DEVIATION, MEAN, RESULT):
        node.append(picks[at])  # so that all that reads the result comes after the statistics
    last = picks[DEVIATION]

    def call(op: Any, *args: Any, **more: Any) -> fx.Node:
        nonlocal last
        with graph.inserting_after(last):
            last = graph.call_function(op, args, more)
        values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
        last.meta = {key: held for key, held in node.meta.items() if key in KEPT} | {"val": op(*values, **more)}
        return last

    def cast(value: fx.Node, dtype: torch.dtype) -> fx.Node:
        return value if value.meta["val"].dtype == dtype else call(aten._to_copy.default, value, dtype=dtype)

    narrow = result.meta["val"].dtype
    wide = WIDE[narrow]
    made = cast(given["input"], wide)
    if grouped != shape:
        made = call(aten.view.default, made, grouped)
    for op, at in ((aten.sub.Tensor, MEAN), (aten.mul.Tensor, DEVIATION)):
        made = call(op, made, call(aten.view.default, cast(picks[at], wide), of_statistics))
    if grouped != shape:
        made = call(aten.view.default, made, shape)
    for op, name in ((aten.mul.Tensor, "weight"), (aten.add.Tensor, "bias")):
        if given[name] is not None:
            made = call(op, made, call(aten.view.default, cast(given[name], wide), by_channel))
    made = cast(made, narrow)
    result.replace_all_uses_with(made)
    graph.erase_node(result)
