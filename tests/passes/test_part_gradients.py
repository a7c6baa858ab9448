"""The gradient of a depthwise convolution's weight is a kernel's where that is better, and right in any case."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.ir.compiled import Way
from bridge.ir.schema import call_arguments

BACKWARD = torch.ops.aten.convolution_backward.default


def ways(compiled: Any) -> list[tuple[list[bool], Way]]:
    """Which gradients each node asks for, and how it runs."""
    (graph,) = [graph for graph in bridge.inspect(compiled).graphs if graph.graph.phase.value == "backward"]
    nodes = [node for node in graph.graph.nodes if node.target is BACKWARD]
    return [(list(call_arguments(node)["output_mask"]), graph.placement[node.name]) for node in nodes]


def compared(net: nn.Module, x: torch.Tensor) -> Any:
    compiled = bridge.compile(net, options={"cache": False})
    results = []
    for module in (net, compiled):
        out = module(x)
        wanted = [t for t in (x, *net.parameters()) if t.requires_grad]
        results.append(torch.autograd.grad(out.square().sum(), wanted))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        assert one.stride() == other.stride()
    return compiled


@pytest.mark.parametrize("multiple", [1, 2])
@pytest.mark.parametrize(
    "more",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 5, "padding": 2, "stride": 2},
        {"kernel_size": (4, 5), "padding": (2, 0), "dilation": (2, 1)},
        {"kernel_size": 3, "padding": 1, "bias": False},
    ],
    ids=str,
)
def test_gradients(more: dict[str, Any], multiple: int) -> None:
    compiled = compared(nn.Conv2d(6, 6 * multiple, groups=6, **more), torch.randn(2, 6, 9, 8, requires_grad=True))
    image, weight = ([True, False, False], Way.LIBRARY), ([False, True, False], Way.GENERATED)
    assert sorted(ways(compiled), reverse=True) == [image, weight]


@pytest.mark.parametrize("bias", [False, True])
def test_alone(bias: bool) -> None:
    """Without an image's gradient nothing is asked of a library: the bias's is a sum."""
    compiled = compared(nn.Conv2d(6, 6, 5, groups=6, bias=bias), torch.randn(2, 6, 8, 8))
    assert ways(compiled) == [([False, True, False], Way.GENERATED)]


@pytest.mark.parametrize(
    "more",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 3, "padding": (1, 0), "stride": 2, "bias": False},
        {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 2)},
        {"kernel_size": 1, "stride": 2},
        {"kernel_size": 3, "padding": (1,), "stride": (2,), "dilation": (1,)},
    ],
    ids=str,
)
@pytest.mark.parametrize("lies", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_large_weight(lies: torch.memory_format, more: dict[str, Any]) -> None:
    x = torch.randn(2, 128, 5, 4).to(memory_format=lies).requires_grad_()
    compiled = compared(nn.Conv2d(128, 129, **more), x)
    assert ways(compiled) == [([True, False, False], Way.LIBRARY)]


def test_a_large_weight_alone() -> None:
    compiled = compared(nn.Conv2d(128, 128, 3, bias=False), torch.randn(1, 128, 5, 5))
    assert ways(compiled) == []


@pytest.mark.parametrize("net", [nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 6, 3, groups=3), nn.Conv2d(6, 6, 3)])
def test_others_stay_whole(net: nn.Conv2d) -> None:
    compiled = compared(net, torch.randn(4, 6, 16, 16, requires_grad=True))
    assert ways(compiled) == [([True, True, True], Way.LIBRARY)]
