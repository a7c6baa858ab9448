"""Kernels that do the same are built once, wherever in a value they begin to read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import bridge


def kernels(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> list[list[str]]:
    """The kernels that each graph calls, after a run that was compared with eager."""
    torch._dynamo.reset()
    compiled = bridge.compile(function)
    mine = [a.clone().requires_grad_() for a in args]
    found, wanted = compiled(*mine), function(*(theirs := [a.clone().requires_grad_() for a in args]))
    torch.testing.assert_close(found, wanted)
    found.sum().backward()
    wanted.sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    return [re.findall(r"^    (k\d\w*)\(", g.source, re.MULTILINE) for g in bridge.inspect(compiled).graphs]


def stepped(steps: list[int]) -> Callable[..., torch.Tensor]:
    """A loop over time in which each step reads a slice of what was computed for all."""

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        every = x.sin().cumsum(0)  # in memory: a scan is no part of another kernel
        state = every[0]
        for n in steps:
            state = (state @ weight + every[n]).tanh()
        return state

    return run


def test_steps_that_read_another_slice_are_one_kernel() -> None:
    x, weight = torch.randn(9, 3, 8), torch.randn(8, 8)
    few, many = (kernels(stepped(list(range(1, n))), x, weight)[0] for n in (4, 8))
    assert len(many) == len(few) + 4
    assert len(set(many)) == len(set(few))


def test_slices_may_come_in_any_order_and_twice() -> None:
    called, _ = kernels(stepped([5, 2, 2, 7]), torch.randn(9, 3, 8), torch.randn(8, 8))
    assert len(called) - len(set(called)) >= 2


def test_what_is_read_at_another_distance_is_another_kernel() -> None:
    def pairs(x: torch.Tensor) -> torch.Tensor:
        every = x.sin().cumsum(0)
        near = (every[1] * every[2]).softmax(-1)
        return near * (every[2] * every[4]).softmax(-1) + (every[4] * every[5]).softmax(-1)

    kernels(pairs, torch.randn(9, 3, 8))


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_layer_is_built_once_for_any_length(kind: Callable[[int, int], nn.RNNBase]) -> None:
    torch.manual_seed(0)
    layer = kind(8, 16)

    def run(x: torch.Tensor) -> torch.Tensor:
        return layer(x)[0]

    (short, short_back), (long, long_back) = (kernels(run, torch.randn(n, 2, 8)) for n in (6, 12))
    assert len(long) > len(short)
    assert len(set(long)) <= len(set(short)) + 1
    assert len(set(long_back)) <= len(set(short_back)) + 1
