"""A gradient is None where eager's is, and zero where eager's is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import bridge

TARGETS = ["tvm", "eager"]


class Heads(nn.Module):
    """Two heads on one trunk, and a third that sees the first only without its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.one, self.other, self.third = (nn.Linear(4, 4) for _ in range(4))
        self.unused = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.trunk(x).tanh()
        one = self.one(h)
        return one, self.other(h), self.third(one.detach())


LOSSES: dict[str, Callable[[Any], torch.Tensor]] = {
    "one": lambda y: y[0].sum(),
    "other": lambda y: y[1].square().sum(),
    "third": lambda y: y[2].sum(),
    "one and third": lambda y: (y[0] * y[2]).sum(),
    "all": lambda y: (y[0] + y[1] + y[2]).sum(),
    "all, one by zero": lambda y: (y[0] * 0 + y[1] + y[2]).sum(),
}


@pytest.mark.parametrize("target", TARGETS)
def test_heads_that_are_not_used(target: str) -> None:
    module, x = Heads(), torch.randn(3, 4)
    compiled = bridge.compile(module, target=target)
    for name, loss in LOSSES.items():
        found = given(compiled, x, loss)
        assert found.keys() == given(module, x, loss).keys(), name
        for parameter, gradient in given(module, x, loss).items():
            torch.testing.assert_close(found[parameter], gradient)


def given(module: nn.Module, x: torch.Tensor, loss: Callable[[Any], torch.Tensor]) -> dict[str, torch.Tensor]:
    module.zero_grad()
    loss(module(x)).backward()
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("target", TARGETS)
def test_a_gradient_of_zero_is_no_missing_one(target: str) -> None:
    """The sign has a gradient, which is zero."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sign() + y, x * 2

    compiled = bridge.compile(f, target=target)
    for number in (0, 1):
        wanted, found = [], []
        for function, gradients in ((f, wanted), (compiled, found)):
            x, y = torch.randn(3).requires_grad_(), torch.randn(3).requires_grad_()
            function(x, y)[number].sum().backward()
            gradients += [x.grad, y.grad]
        for mine, theirs in zip(found, wanted, strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs)


@pytest.mark.parametrize("target", TARGETS)
def test_views_of_one_intermediate(target: str) -> None:
    """AOTAutograd makes these anew from their base, a result of its own."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x * 2
        return h.t(), h.view(-1), y + 1

    compiled = bridge.compile(f, target=target)
    for number in range(3):
        grads = []
        for function in (f, compiled):
            x, y = torch.ones(2, 3, requires_grad=True), torch.ones(2, requires_grad=True)
            function(x, y)[number].sum().backward()
            grads.append([x.grad, y.grad])
        assert [g is None for g in grads[0]] == [g is None for g in grads[1]], number
