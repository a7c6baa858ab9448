"""What torch loses of symbols at a graph break is found again: nothing behind it is compiled for one size alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import graph_break

import bridge


def made(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Pairs, a number for each, and how many there are, of which no graph knows that it comes of a symbol."""
    count = len(x) + 3
    return torch.arange(2 * count).view(2, count) % len(x), torch.linspace(0, 1, count), count


made_elsewhere: Any = torch.compiler.disable(made)


class Pairs(nn.Module):
    """Breaks before anything is captured. What follows is given tensors of a size that nobody has marked."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs, weights, count = made_elsewhere(x)
        return self.summed(self.inside(x), pairs, weights, count) + self.summed(x, pairs, weights, count)

    def summed(self, x: torch.Tensor, pairs: torch.Tensor, weights: torch.Tensor, count: int) -> torch.Tensor:
        both = x[pairs[0]] * x[pairs[1]] * weights[:, None] + x.new_ones(count, 1)
        graph_break()
        return both.cos().sum(0)


class Widths(nn.Module):
    """One code for two modules, whose weights are not of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Part(5, 7), Part(7, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Part(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.linear(x, self.weight)
        graph_break()
        return x.tanh()


@pytest.mark.parametrize("make", [Pairs, Widths])
def test_a_broken_graph_is_compiled_once_for_all_sizes(make: Any) -> None:
    torch.manual_seed(0)
    module = make()
    compiled, eager = bridge.compile(module), copy.deepcopy(module)
    graphs = []
    for size in (6, 9, 4):
        x = torch.randn(size, 5)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        module.zero_grad()
        eager.zero_grad()
        for call in (compiled, eager):
            call(x).square().sum().backward()
        for mine, theirs in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
        graphs.append(len(bridge.inspect(compiled).graphs))
    assert graphs[0] == graphs[-1] > 0
    about = [e for e in compiled.ledger.select(dead_end="dynamic_shape") if make is Pairs or "weight" in e.detail]
    assert not about


def test_marks_go_when_a_frame_is_compiled() -> None:
    """What a tensor says of itself is the user's: his marks stay, and no other comes."""
    seen: list[dict[str, Any]] = []

    looked: Any = torch.compiler.disable(lambda x: seen.append(dict(vars(x))))

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.sin()
        graph_break()
        z = z + y.sum()
        looked(y)
        return z * 2

    x, y = torch.randn(6, 3, requires_grad=True), torch.randn(6, 3)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    compiled = bridge.compile(function)
    torch.testing.assert_close(compiled(x, y), (x.sin() + y.sum()) * 2)
    assert bridge.inspect(compiled).graphs
    assert not any("_dynamo_weak_dynamic_indices" in attributes for attributes in seen)
