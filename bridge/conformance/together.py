"""Several calls as one graph, so that one build serves them all."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._pytree import tree_flatten, tree_unflatten

from bridge.backends.tvm.lower import lower
from bridge.backends.tvm.machine import machine
from bridge.conformance.calls import Call
from bridge.ir.compiled import Way
from bridge.ir.joint import Graph, Phase, Role
from bridge.ir.trees import tree_map
from bridge.ledger import Ledger
from bridge.options import Options
from bridge.pipeline import compile_graph


class Together:
    """One graph of many calls. `nodes` are the calls' own, in order."""

    def __init__(self, calls: Sequence[Call], symbolic: bool = False) -> None:
        self.calls = calls
        self._symbolic = symbolic
        self._mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        self._graph = fx.Graph()
        self.inputs: list[torch.Tensor] = []
        entered = [self._entered(call) for call in calls]
        self.nodes = [self._called(call, *arguments) for call, arguments in zip(calls, entered, strict=True)]
        self._picks = [self._results(node) for node in self.nodes]
        self._graph.output([pick for picks in self._picks for pick in picks])

    def _entered(self, call: Call) -> Any:
        leaves, spec = tree_flatten((call.args, call.kwargs))
        return tree_unflatten([self._placeholder(v) if isinstance(v, torch.Tensor) else v for v in leaves], spec)

    def _placeholder(self, value: torch.Tensor) -> fx.Node:
        node = self._graph.placeholder(f"x{len(self.inputs)}")
        if self._symbolic:
            dynamic = [DimDynamic.DYNAMIC if n > 1 else DimDynamic.STATIC for n in value.shape]
            how: dict[str, Any] = {"symbolic_context": StatelessSymbolicContext(dynamic_sizes=dynamic)}
        else:
            how = {"static_shapes": True}
        node.meta["val"] = self._mode.from_tensor(value, source=ConstantSource(node.name), **how)
        self.inputs.append(value)
        return node

    def _called(self, call: Call, args: Any, kwargs: Any) -> fx.Node:
        node = self._graph.call_function(call.op, args, kwargs)
        fakes = tree_map(lambda v: v.meta["val"] if isinstance(v, fx.Node) else v, (args, kwargs))
        with self._mode, enable_python_dispatcher():
            node.meta["val"] = call.op(*fakes[0], **fakes[1])
        return node

    def _results(self, node: fx.Node) -> list[fx.Node]:
        val = node.meta["val"]
        if isinstance(val, torch.Tensor):
            return [node]
        picks = []
        for i, v in enumerate(val):
            if v is not None:
                pick = self._graph.call_function(operator.getitem, (node, i))
                pick.meta["val"] = v
                picks.append(pick)
        return picks

    def graph(self) -> Graph:
        module = fx.GraphModule(torch.nn.Module(), self._graph)
        outputs = sum(len(p) for p in self._picks)
        return Graph("calls", Phase.INFERENCE, module, (Role.INPUT,) * len(self.inputs), (Role.OUTPUT,) * outputs)

    def described(self) -> list[tuple[torch.dtype, tuple[int, ...]]]:
        """Type and sizes of each result, as torch says without computing any."""
        vals = [pick.meta["val"] for picks in self._picks for pick in picks]
        return [(val.dtype, tuple(val.shape)) for val in vals]

    def by_call(self, results: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Results by call."""
        left = iter(results)
        return [[next(left) for _ in picks] for picks in self._picks]

    def on_the_machine(self) -> list[list[torch.Tensor]]:
        """What TVM's virtual machine makes of what the rows made."""
        graph = self.graph()
        lowered = lower(graph, {node.name: Way.GENERATED for node in self.nodes})
        return self.by_call(machine(lowered.module)(self.inputs))

    def as_a_program(self, ways: frozenset[Way] = frozenset({Way.GENERATED})) -> list[list[torch.Tensor]]:
        """What the bridge's own kernels make of it. Raises AssertionError if any call went elsewhere."""
        ledger = Ledger()
        compiled = compile_graph(self.graph(), Options(library=False), ledger)
        elsewhere = [e for e in ledger if e.kind != "copied"]
        assert not elsewhere, "\n".join(f"{e.op} {e.kind}: {e.detail}" for e in elsewhere)
        assert set(compiled.placement.values()) <= ways, compiled.placement
        return self.by_call(compiled.run(list(self.inputs)))
