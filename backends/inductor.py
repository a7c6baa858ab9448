"""Inductor: torch's own compiler, one call-out at a time. On a CPU it means a C++ compilation for each node."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from bridge.ir.backend import Refusal
from bridge.ir.callout import callout_inputs
from bridge.ir.nodes import is_random, op_name
from bridge.ledger import DeadEnd
from bridge.runtime.examples import dispatched, zeros


class Inductor:
    """Takes ATen overloads that give tensors of sizes known when compiling."""

    name = "inductor"

    def accepts(self, node: fx.Node) -> Refusal | None:
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in ("aten", "prims"):
            return Refusal(DeadEnd.COVERAGE, f"Inductor is not given {op_name(node)}, which is no ATen op", "no row")
        if is_random(node):
            return Refusal(DeadEnd.COVERAGE, f"Inductor draws other random numbers for {op_name(node)}", "random")
        if len(callout_inputs(node)) < len(node.all_input_nodes):
            return Refusal(DeadEnd.COVERAGE, f"Inductor is not given {op_name(node)} with a constant in it", "no row")
        values = [node.meta.get("val"), *(source.meta.get("val") for source in node.all_input_nodes)]
        for tensor in _tensors(values):
            if not isinstance(tensor, torch.Tensor):
                return Refusal(DeadEnd.COVERAGE, f"Inductor is not given {op_name(node)} for its numbers", "no row")
            if any(isinstance(size, torch.SymInt) for size in tensor.shape):
                return Refusal(DeadEnd.DYNAMIC_SHAPE, f"Inductor is not given symbolic sizes of {op_name(node)}", "")
        return None

    def build(self, node: fx.Node) -> tuple[Callable[..., Any], dict[str, int]]:
        """Compile the node and run it once, on zeros, to see what it dispatches. Raises whatever Inductor raises."""
        from torch._inductor import standalone_compile
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        module = alone(node)
        examples = [source.meta["val"] for source in callout_inputs(node)]
        compiled = standalone_compile(module, examples, dynamic_shapes="from_example_inputs")
        has_one = isinstance(node.meta["val"], torch.Tensor)

        def call(*values: torch.Tensor) -> Any:
            results = compiled(*values)
            return results[0] if has_one else results

        with unset_fake_temporarily():  # a graph is compiled while torch is still tracing
            return call, dispatched(call, [zeros(value) for value in examples])


def alone(node: fx.Node) -> fx.GraphModule:
    """The node as a graph of its own, whose results are a tuple."""
    graph = fx.Graph()
    inputs = {source: graph.placeholder(source.name) for source in callout_inputs(node)}
    for source, placeholder in inputs.items():
        placeholder.meta = dict(source.meta)
    made = graph.node_copy(node, inputs.__getitem__)
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        graph.output((made,))
    else:
        graph.output(tuple(graph.call_function(operator.getitem, (made, place)) for place in range(len(value))))
    return fx.GraphModule({}, graph)


def _tensors(values: list[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
