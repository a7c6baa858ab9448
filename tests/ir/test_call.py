"""The text of a call, run, is the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from bridge.ir.call import call_text, sizes_at_capture
from bridge.ir.nodes import computes

aten = torch.ops.aten
Mode = Literal["fake", "symbolic"]
X, INDEX = torch.linspace(-2, 3, 12).reshape(3, 4), torch.tensor([2, 0])


def node_of(function: Callable[..., Any], *inputs: torch.Tensor, mode: Mode = "fake") -> fx.Node:
    return next(node for node in make_fx(function, tracing_mode=mode)(*inputs).graph.nodes if computes(node))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: aten.topk.default(x, 3), (X,)),
        (lambda x: aten.cat.default([x, x], 1), (X,)),
        (lambda x, i: aten.index.Tensor(x, [None, i]), (X, INDEX)),
        (lambda x: aten.clamp.default(x, float("-inf"), 1.5), (X,)),
        (lambda x: aten._to_copy.default(x, dtype=torch.float64, device=torch.device("cpu")), (X,)),
        (lambda x: aten.clone.default(x, memory_format=torch.contiguous_format), (X,)),
        (lambda x: aten.gelu.default(x, approximate="tanh"), (X,)),
        (lambda x: aten.mul.Tensor(x, 2j), (X,)),
    ],
)
def test_it_computes_the_same(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> None:
    text = call_text(node_of(function, *inputs))
    got = eval(text, {"torch": torch, **{f"x{n}": tensor for n, tensor in enumerate(inputs)}})
    torch.testing.assert_close(got, function(*inputs))


def test_symbols_are_the_sizes_of_the_capture() -> None:
    node = node_of(lambda x: aten.new_zeros.default(x, [x.shape[0], 7], pin_memory=False), X, mode="symbolic")
    assert call_text(node) == "torch.ops.aten.new_zeros.default(x0, [3, 7], pin_memory=False)"
    assert sizes_at_capture(node) == ((3, 4),)
    assert sizes_at_capture(node_of(torch.tanh, X)) == ()


def test_an_op_over_graphs_has_no_text() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    calls = [node for node in make_fx(choose, tracing_mode="fake")(X).graph.nodes if str(node.target) == "cond"]
    assert [call_text(node) for node in calls] == [""]
