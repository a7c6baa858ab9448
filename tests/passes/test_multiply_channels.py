"""Convolutions that multiply channels are products of matrices on a CPU, with the same results in the same layouts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.ir.convolutions import CONVOLUTIONS

aten = torch.ops.aten


def targets(compiled: Any) -> list[Any]:
    return [node.target for graph in bridge.inspect(compiled).graphs for node in graph.graph.nodes]


def gradients(module: Any, x: torch.Tensor, parameters: list[nn.Parameter]) -> list[torch.Tensor]:
    wanted = [t for t in (x, *parameters) if t.requires_grad]
    result = module(x)
    return [result, *torch.autograd.grad(result.square().sum(), wanted)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lies", ["plain", "by channels", "sliced"])
@pytest.mark.parametrize("sizes", [(2, 6, 5, 7), (1, 6, 5, 7), (3, 6, 1, 1), (1, 1, 4, 4), (2, 2, 3, 3)])
def test_products(sizes: tuple[int, ...], lies: str, bias: bool) -> None:
    torch.manual_seed(0)
    net = nn.Conv2d(sizes[1], 4, 1, bias=bias)
    x = torch.randn(sizes)
    if lies == "by channels":
        x = x.to(memory_format=torch.channels_last)
    elif lies == "sliced":
        x = torch.randn(sizes[0], sizes[1] + 1, *sizes[2:])[:, 1:]
    x.requires_grad_()
    compiled = bridge.compile(net, options={"cache": False})
    theirs, mine = (gradients(module, x, list(net.parameters())) for module in (net, compiled))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    found = targets(compiled)
    assert not set(found) & set(CONVOLUTIONS)
    assert aten.mm.default in found


def test_only_what_is_asked_for() -> None:
    """A frozen weight has no gradient, and a product less is computed."""
    net = nn.Conv2d(3, 4, 1).requires_grad_(False)
    compiled = bridge.compile(net, options={"cache": False})
    theirs, mine = (gradients(m, torch.ones(2, 3, 4, 4, requires_grad=True), []) for m in (net, compiled))
    torch.testing.assert_close(mine, theirs)
    assert sum(target in (aten.mm.default, aten.addmm.default) for target in targets(compiled)) == 2


@pytest.mark.parametrize("more", [{"stride": 2}, {"padding": 1}, {"groups": 3}, {"kernel_size": (1, 3)}], ids=str)
def test_what_slides_is_none(more: dict[str, Any]) -> None:
    net = nn.Conv2d(3, 6, **{"kernel_size": 1, **more})
    compiled = bridge.compile(net, options={"cache": False})
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    theirs, mine = (gradients(module, x, list(net.parameters())) for module in (net, compiled))
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert set(targets(compiled)) & set(CONVOLUTIONS)


def test_special_numbers() -> None:
    """What is not finite shows in the same places."""
    net = nn.Conv2d(3, 4, 1)
    x = torch.randn(2, 3, 4, 4)
    x[0, 0, 0, 0], x[0, 1, 1, 1], x[1, 2, 3, 3] = float("nan"), float("inf"), -float("inf")
    compiled = bridge.compile(net, options={"cache": False})
    torch.testing.assert_close(compiled(x), net(x), equal_nan=True, rtol=1e-5, atol=1e-5)
