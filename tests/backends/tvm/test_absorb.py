"""Loops written by hand compute what they would read, where that is cheap: it takes no memory, and no kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import bridge
from bridge.bench.memory import peak_bytes
from bridge.ir.compiled import CompiledGraph

NODES, EDGES, WIDTH = 16, 300, 32


def compiled_once(function: Callable[..., Any], *args: torch.Tensor) -> tuple[CompiledGraph, Any]:
    """The graph of a function whose result is that of eager, and what was compiled."""
    torch._dynamo.reset()
    compiled = bridge.compile(function)
    torch.testing.assert_close(compiled(*args), function(*args))
    (graph,) = bridge.inspect(compiled).graphs
    assert not graph.callouts
    return graph, compiled


def messages(x: torch.Tensor, edges: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    sent = weight.view(-1, 1) * x.index_select(0, edges[0])
    index = edges[1].view(-1, 1).expand_as(sent)
    return sent.new_zeros(NODES, x.shape[1]).scatter_add(0, index, sent)


def given(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(NODES, WIDTH, dtype=dtype)
    return x, torch.randint(NODES, (2, EDGES)), torch.randn(EDGES, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_messages_along_edges_take_no_memory(dtype: torch.dtype) -> None:
    args = given(dtype)
    with torch.no_grad():
        graph, compiled = compiled_once(messages, *args)
        assert f"empty(({EDGES}" not in graph.source
        compiled(*args)
        assert peak_bytes(lambda: compiled(*args)) < 2 * NODES * WIDTH * max(4, args[0].itemsize)


def test_nor_do_they_in_training_with_symbolic_sizes() -> None:
    module = torch.nn.Linear(WIDTH, WIDTH)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = module

        def forward(self, x: torch.Tensor, edges: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return messages(self.linear(x), edges, weight)

    torch._dynamo.reset()
    layer, compiled = Layer(), bridge.compile(Layer(), dynamic=True)
    for edges in (EDGES, EDGES + 11):
        x, index, weight = torch.randn(NODES, WIDTH), torch.randint(NODES, (2, edges)), torch.randn(edges)
        torch.testing.assert_close(compiled(x, index, weight), layer(x, index, weight))
        expected = torch.autograd.grad(layer(x, index, weight).square().sum(), module.weight)
        found = torch.autograd.grad(compiled(x, index, weight).square().sum(), module.weight)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

    def step() -> None:
        compiled(x, index, weight).sum().backward()

    step()
    assert peak_bytes(step) < edges * WIDTH * 4


def test_indices_out_of_bounds_are_told_still() -> None:
    x, edges, weight = given()
    with torch.no_grad():
        _, compiled = compiled_once(messages, x, edges, weight)
        for row in range(2):
            wrong = edges.clone()
            wrong[row, 7] = NODES
            with pytest.raises(IndexError):
                compiled(x, wrong, weight)


def test_a_dear_function_keeps_a_kernel_with_lanes() -> None:
    def softened(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros(NODES).scatter_add(0, index, x.exp())

    with torch.no_grad():
        graph, _ = compiled_once(softened, torch.randn(EDGES), torch.randint(NODES, (EDGES,)))
    assert f"empty(({EDGES},), (1,), torch_float32)" in graph.source


def test_what_others_read_too_is_computed_once() -> None:
    def both(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x * y + x
        return torch.zeros(NODES).scatter_add(0, index, z), torch.zeros(NODES).scatter_reduce(0, index, z, "amax")

    with torch.no_grad():
        graph, _ = compiled_once(both, torch.randn(EDGES), torch.randn(EDGES), torch.randint(NODES, (EDGES,)))
    assert graph.source.count(f"empty(({EDGES},), (1,), torch_float32)") == 1


def test_views_and_inputs_that_lie_otherwise_are_read_as_they_lie() -> None:
    def put(x: torch.Tensor, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return x.index_put((index[::2],), value.t(), accumulate=True)

    x = torch.empty_strided((NODES, 8), (1, NODES)).copy_(torch.randn(NODES, 8))
    with torch.no_grad():
        graph, _ = compiled_once(put, x, torch.randint(NODES, (10,)), torch.randn(8, 5))
    assert graph.source.count(", torch_float32)") == 2, graph.source  # the result, and its copy as torch lays it
