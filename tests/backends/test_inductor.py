"""Inductor takes a node by itself, and says which it does not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from bridge.backends.inductor import Inductor
from bridge.ir.callout import callout_inputs
from bridge.ir.nodes import computes


def only_node(
    function: Callable[..., torch.Tensor], *inputs: torch.Tensor, mode: Literal["fake", "symbolic"] = "fake"
) -> fx.Node:
    module = make_fx(function, tracing_mode=mode)(*inputs)
    (node,) = (node for node in module.graph.nodes if computes(node))
    return node


@pytest.mark.parametrize(
    "function", [lambda x: torch.ops.aten.gelu(x, approximate="tanh"), lambda x: torch.sort(x, dim=0)[0]]
)
def test_a_compiled_node_gives_what_eager_gives(function: Callable[..., torch.Tensor]) -> None:
    x = torch.randn(3, 4)
    node = only_node(function, x)
    assert Inductor().accepts(node) is None
    assert len(callout_inputs(node)) == 1
    call, _ = Inductor().build(node)
    found = call(x)
    torch.testing.assert_close(found if isinstance(found, torch.Tensor) else found[0], function(x))


@pytest.mark.parametrize(
    ("function", "mode", "reason"),
    [
        (lambda x: torch.bernoulli(x), "fake", "random"),
        (lambda x: x.exp(), "symbolic", "symbolic sizes"),
    ],
)
def test_what_it_does_not_take_has_a_reason(
    function: Callable[..., torch.Tensor], mode: Literal["fake", "symbolic"], reason: str
) -> None:
    refusal = Inductor().accepts(only_node(function, torch.rand(3, 4), mode=mode))
    assert refusal is not None
    assert reason in refusal.detail


def test_a_constant_of_the_graph_is_left_to_others() -> None:
    node = only_node(lambda x: x + 1, torch.rand(3, 4))
    with node.graph.inserting_before(node):
        node.args = (node.args[0], node.graph.create_node("get_attr", "held"))
    refusal = Inductor().accepts(node)
    assert refusal is not None
    assert "with a constant in it" in refusal.detail
