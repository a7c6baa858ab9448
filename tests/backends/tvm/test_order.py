"""Gradients of weights run where that holds least: early where they let go of more, late where they take it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Phase


def backward_of(model: nn.Module, x: torch.Tensor) -> CompiledGraph:
    """The backward graph of a model whose gradients are eager's."""
    compiled = bridge.compile(model)
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    found = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    return next(g for g in bridge.inspect(compiled).graphs if g.graph.phase is Phase.BACKWARD)


def results(graph: CompiledGraph) -> list[tuple[int, ...]]:
    """The shapes of what products give, in the order in which they run."""
    shapes = {n.name: tuple(n.meta["val"].shape) for n in graph.graph.nodes if "mm" in n.name}
    lines = [line.split(" = call_")[0].strip() for line in graph.source.splitlines() if " = call_" in line]
    return [shapes[name] for name in lines if name in shapes]


class Layers(nn.Sequential):
    def __init__(self, *widths: int) -> None:
        pairs = pairwise(widths)
        super().__init__(*(layer for a, b in pairs for layer in (nn.Linear(a, b, bias=False), nn.Tanh())))


def test_with_many_samples_a_weights_gradient_comes_before_what_takes_more() -> None:
    graph = backward_of(Layers(64, 72, 80), torch.randn(1000, 64))
    assert results(graph) == [(80, 72), (1000, 72), (72, 64)]


def test_with_few_samples_it_waits_for_the_end() -> None:
    graph = backward_of(Layers(112, 128, 144, 160), torch.randn(40, 112))
    assert results(graph)[:2] == [(40, 144), (40, 128)]
    assert sorted(results(graph)[2:]) == [(128, 112), (144, 128), (160, 144)]


def moved(
    x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, v: torch.Tensor, k: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The second result is of a size that is read after a larger value was made."""
    product, large = x @ w, y.exp()
    first, number = large @ v, int(k.item())
    torch._check(number >= 0)
    torch._check(number <= product.shape[0])
    return first, product[:number] * 2


def added(x: torch.Tensor, z: torch.Tensor, y: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A sum whose last term is made with an earlier one, but before the number that the other term is made of."""
    sums = x.sum(1)
    total = z * k.item() + (x * x).sum(1)
    return sums[None] @ x, (total + y).sin()


@pytest.mark.parametrize(
    ("function", "shapes", "number"),
    [
        (moved, [(8192, 64), (64, 64), (2048, 300), (300, 64)], 700),
        (added, [(64, 512), (64,), (64,)], 3),
    ],
)
def test_a_size_is_told_before_it_is_asked_for(function: Any, shapes: list[tuple[int, ...]], number: int) -> None:
    args = [*map(torch.randn, shapes), torch.tensor(number)]
    compiled = bridge.compile(function)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        found = compiled(*args)
    for one, other in zip(found, function(*args), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert len(bridge.inspect(compiled).graphs) == 1
