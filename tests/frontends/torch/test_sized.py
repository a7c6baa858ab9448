"""Gradients that torch's own autograd computes with sizes as numbers: here one compilation serves every size."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import bridge


def chosen(x: torch.Tensor) -> torch.Tensor:
    mask = torch.arange(len(x)) % 3 != 1
    return torch.masked_select(x, mask.view(-1, 1)).view(-1, 6).square()


def chosen_by_a_wider_mask(x: torch.Tensor) -> torch.Tensor:
    return x.masked_select(torch.ones(len(x), 6, dtype=torch.bool).tril()).exp()


def windows(x: torch.Tensor) -> torch.Tensor:
    """Rows of 6 in pairs, each row seen twice."""
    return x.as_strided((len(x) - 1, 2, 6), (6, 6, 1)).tanh()


def windows_of_a_transpose(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 2, 3).transpose(0, 1).as_strided((len(x), 2, 4), (6, 2, 1)).tanh()


def windows_within(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x, (len(x), 3), (4, 1), 5).tanh()


class Scaled(nn.Module):
    def __init__(self, then: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inside, self.then = nn.Linear(6, 6), then

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.then(self.inside(x))


@pytest.mark.parametrize("then", [chosen, chosen_by_a_wider_mask, windows, windows_of_a_transpose, windows_within])
def test_one_compilation_serves_every_size(then: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(0)
    module = Scaled(then)
    compiled, eager = bridge.compile(module, dynamic=True), copy.deepcopy(module)
    for size in (7, 8, 11):
        x = torch.randn(size, 6)
        module.zero_grad()
        eager.zero_grad()
        for call in (compiled, eager):
            result = call(x)
            (result * result.detach().cos()).sum().backward()
        for mine, theirs in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert len(bridge.inspect(compiled).graphs) == 2
    assert not compiled.ledger.select(dead_end="dynamic_shape")


def test_windows_that_leave_the_tensor_are_torchs_own() -> None:
    """A view of a part of memory may show more of it than the part; there torch says what the gradient is."""
    torch.manual_seed(0)
    module = Scaled(lambda x: x[1:].as_strided((len(x) - 1, 2, 6), (6, 6, 1), 0).tanh())
    compiled, eager = bridge.compile(module, dynamic=True), copy.deepcopy(module)
    x = torch.randn(5, 6)
    compiled(x).sum().backward()
    eager(x).sum().backward()
    torch.testing.assert_close(module.inside.weight.grad, eager.inside.weight.grad)
