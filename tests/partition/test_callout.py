"""A call-out does what its node does, and dispatches what it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

import bridge
from bridge.backends.eager import Eager
from bridge.ir.callout import callout, callout_inputs

aten = torch.ops.aten
A = torch.arange(12.0).reshape(3, 4)
B = torch.linspace(-1, 1, 12).reshape(3, 4)
INDEX = torch.tensor([2, 0])
IMAGE = torch.randn(1, 2, 5, 5)
KERNEL = torch.randn(3, 2, 3, 3)

CALLS = [
    (aten.mm.default, (A, B.t()), {}),
    (aten.addmm.default, (torch.ones(3), A, B.t()), {"beta": 0.5, "alpha": 2}),
    (aten.add.Tensor, (A, A), {}),
    (aten.add.Tensor, (A, 2), {"alpha": 3}),
    (aten.index.Tensor, (A, [None, INDEX]), {}),
    (aten.cat.default, ([A, B, A], 1), {}),
    (aten.where.self, (A > 3, A, B), {}),
    (aten.sort.default, (B, 1, True), {}),
    (aten.split_with_sizes.default, (A, [1, 3], 1), {}),
    (aten.convolution.default, (IMAGE, KERNEL, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), {}),
    (aten.full.default, ([2, 2], 7), {"dtype": torch.float64, "device": torch.device("cpu"), "pin_memory": False}),
    (aten.sum.dim_IntList, (A, [0], True), {"dtype": torch.float64}),
]


class Count(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops[str(func)] = self.ops.get(str(func), 0) + 1
        return func(*args, **(kwargs or {}))


def node_of(op: OpOverload, args: tuple, kwargs: dict) -> tuple[fx.Node, list[torch.Tensor]]:
    """A graph with one call, its tensors as placeholders, equal ones shared."""
    graph, values = fx.Graph(), []
    places: dict[int, fx.Node] = {}

    def replace(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in places:
                places[id(value)] = graph.placeholder(f"p{len(places)}")
                values.append(value)
            return places[id(value)]
        return [replace(item) for item in value] if isinstance(value, list) else value

    new_args = tuple(replace(value) for value in args)
    return graph.call_function(op, new_args, kwargs), values


@pytest.mark.parametrize(("op", "args", "kwargs"), CALLS, ids=[str(call[0]) for call in CALLS])
def test_a_call_out_is_its_node(op: OpOverload, args: tuple, kwargs: dict) -> None:
    node, values = node_of(op, args, kwargs)
    call, ops = Eager().build(node)
    assert len(callout_inputs(node)) == len(values)
    with Count() as count:
        result = call(*values)
    torch.testing.assert_close(result, op(*args, **kwargs), rtol=0, atol=0)
    assert ops == count.ops


def test_a_higher_order_op_brings_its_subgraph() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    program = torch.export.export(Branch(), (torch.ones(3),), strict=True).run_decompositions({})
    (node,) = (n for n in program.graph.nodes if isinstance(n.target, torch._ops.HigherOrderOperator))
    call, ops = callout(node)
    for x in (torch.ones(3), -torch.ones(3)):
        inputs = {"x": x, "gt": x.sum() > 0}
        values = [inputs[source.name] for source in callout_inputs(node)]
        expected = x.sin() if x.sum() > 0 else x.cos()
        torch.testing.assert_close(call(*values)[0], expected, rtol=0, atol=0)
    assert ops == {"aten.sin.default": 1, "aten.cos.default": 1}


def test_an_op_with_an_effect_is_called_in_its_place() -> None:
    """torch checks a factorisation by an op whose only effect is its error."""

    def factor(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(x).sum()

    compiled = bridge.compile(factor)
    x = torch.eye(3).mul(4).requires_grad_()
    torch.testing.assert_close(compiled(x), factor(x))
    (graph, *_) = bridge.inspect(compiled).graphs
    assert [callout.ops for callout in graph.callouts if "check" in str(callout.ops)] == [
        {"aten._linalg_check_errors.default": 1}
    ]
    with pytest.raises(RuntimeError, match="positive-definite"):
        compiled(-x)
    assert not compiled.ledger.select(kind="higher-order op")
    assert bridge.audit(lambda: compiled(x).backward()).ok
