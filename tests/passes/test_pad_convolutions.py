"""Small convolutions without padding are kernels, and compute what they did."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import bridge
from bridge.ir.compiled import Way
from bridge.ir.convolutions import CONVOLUTIONS

SMALL = {
    "1d": (nn.Conv1d(3, 4, 3, padding=1), (2, 3, 32)),
    "dilated": (nn.Conv1d(3, 4, 3, padding=2, dilation=2), (2, 3, 32)),
    "2d": (nn.Conv2d(3, 4, 3, padding=1), (2, 3, 16, 16)),
    "one number of padding": (nn.Conv2d(3, 4, 3, padding="same"), (1, 3, 8, 16)),
    "no bias": (nn.Conv2d(3, 4, (5, 3), padding=(2, 1), bias=False), (2, 3, 7, 16)),
    "wider border": (nn.Conv2d(3, 4, (3, 1), padding=(4, 0)), (2, 3, 7, 16)),
    "3d": (nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 4, 16)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3, padding=1), (2, 3, 16, 16)),
    "transposed 3d": (nn.ConvTranspose3d(2, 3, 3, padding=1), (1, 2, 4, 4, 16)),
}
"""Convolutions that slide by one, along rows of whole lanes, and the sizes of their images."""

OTHERS = {
    "stride": (nn.Conv2d(3, 4, 3, padding=1, stride=2), (2, 3, 16, 32), 2),
    "groups": (nn.Conv2d(4, 4, 3, padding=1, groups=2), (2, 4, 16, 16), 2),
    "rows": (nn.Conv2d(3, 4, 3, padding=1), (2, 3, 16, 15), 2),
    "more places behind": (nn.ConvTranspose2d(3, 4, 3, padding=2, dilation=2, output_padding=(1, 0)), (2, 3, 8, 16), 2),
    "large": (nn.Conv2d(32, 32, 3, padding=1), (2, 32, 16, 16), 2),
    "a larger gradient of the weight": (nn.Conv2d(4, 4, 3, padding=1), (2, 4, 32, 32), 1),
}
"""Convolutions that are not small in all, the sizes of their images, and how often the library is called for one."""


def gradients(module: nn.Module, net: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    result = module(x)
    return [result, *torch.autograd.grad(result.sin().sum(), [x, *net.parameters()])]


def called(compiled: nn.Module) -> list[str]:
    """The convolutions that a library is called for."""
    graphs = bridge.inspect(compiled).graphs
    return [
        node.name
        for graph in graphs
        for node in graph.graph.nodes
        if node.target in CONVOLUTIONS and graph.placement[node.name] is Way.LIBRARY
    ]


@pytest.mark.parametrize("name", SMALL)
def test_small_convolutions_are_kernels(name: str) -> None:
    layer, sizes = SMALL[name]
    net, x = copy.deepcopy(layer), torch.randn(sizes)
    compiled = bridge.compile(net, options={"cache": False})
    found, expected = gradients(compiled, net, x), gradients(layer, layer, x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.stride() == other.stride()
    assert called(compiled) == []


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_the_librarys(name: str) -> None:
    layer, sizes, calls = OTHERS[name]
    net, x = copy.deepcopy(layer), torch.randn(sizes)
    compiled = bridge.compile(net, options={"cache": False})
    for one, other in zip(gradients(compiled, net, x), gradients(layer, layer, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6 * max(10, other.abs().max().item()))
    assert len(called(compiled)) == calls


def test_frozen_parts_and_inference() -> None:
    """Only the gradients that are asked for are computed."""
    layer, x = nn.Conv2d(3, 4, 3, padding=1), torch.randn(2, 3, 16, 16)
    layer.bias.requires_grad_(False)  # type: ignore[union-attr]
    net = copy.deepcopy(layer)
    compiled = bridge.compile(net, options={"cache": False})
    for module in (compiled, layer):
        module(x).sin().sum().backward()
    torch.testing.assert_close(net.weight.grad, layer.weight.grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)
    assert called(compiled) == []


@pytest.mark.parametrize("layer", [nn.Conv1d(3, 4, 3), nn.Conv1d(3, 4, 3, padding=1)], ids=["inside", "border"])
def test_symbolic_rows_are_asked_nothing(layer: nn.Module) -> None:
    """One program for all lengths: whether they are multiples of anything makes no guard."""
    net = copy.deepcopy(layer)
    compiled = bridge.compile(net, dynamic=True, options={"cache": False})
    for length in (34, 50, 61):
        x = torch.randn(2, 3, length)
        for one, other in zip(gradients(compiled, net, x), gradients(layer, layer, x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert len(bridge.inspect(compiled).graphs) == 2
