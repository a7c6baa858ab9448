"""Images that lie by channels are trained on as before, and lie as they did wherever somebody sees them."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.passes.lay_out_images import lay_out_images
from tests.backends.tvm.emulated import emulated


class Net(nn.Module):
    """Two convolutions with what stands around them, a residual, and an image among the results."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(2))
        self.block = nn.Conv2d(16, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16 * 16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.pool(self.norms[0](self.stem(x)).relu())
        z = (self.norms[1](self.block(y)) + y).relu()
        return z, self.head(nn.functional.avg_pool2d(z, 2, ceil_mode=True).flatten(1)) + z.mean((2, 3))[:, :4]


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout as for a GPU."""
    monkeypatch.setattr(sys.modules[lay_out_images.__module__], "_is_wide", lambda node: True)


def trained(module: Any, net: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    image, scores = module(x)
    (image.square().mean() + scores.square().mean()).backward()
    return [image, scores, *(p.grad for p in net.parameters() if p.grad is not None), *net.buffers()]


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_training(wanted: None, autocast: bool, format: torch.memory_format) -> None:
    net = Net().to(memory_format=format)
    eager, x = copy.deepcopy(net), torch.randn(4, 3, 16, 16).to(memory_format=format)
    with emulated(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        compiled = bridge.compile(net, options={"cache": False})
        mine = trained(compiled, net, x)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        theirs = trained(eager, eager, x)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=3e-2 if autocast else 1e-4, atol=3e-2 if autocast else 1e-5)
    assert mine[0].stride() == theirs[0].stride()
    forward = bridge.inspect(compiled).graphs[0].graph
    read = [
        node.all_input_nodes[0].meta["val"]
        for node in forward.nodes
        if node.target is torch.ops.aten.convolution.default
    ]
    assert len(read) == 2
    assert all(value.is_contiguous(memory_format=torch.channels_last) for value in read)


def test_inference(wanted: None) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 16, 16)
    with emulated(), torch.no_grad():
        compiled = bridge.compile(net, options={"cache": False})
        for one, other in zip(compiled(x), net(x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
            assert one.stride() == other.stride()


def test_a_step(wanted: None) -> None:
    net, x = Net(), torch.randn(4, 3, 16, 16)
    eager = copy.deepcopy(net)
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (net, eager))
    step = bridge.compile_step(net, mine, lambda result: result[1].square().mean(), options={"cache": False})
    for _ in range(2):
        found = step(x)
        theirs.zero_grad()
        loss = eager(x)[1].square().mean()
        loss.backward()
        theirs.step()
        torch.testing.assert_close(found, loss.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(list(net.parameters()), list(eager.parameters()), rtol=1e-3, atol=1e-4)
    (graph,) = bridge.inspect(step).graphs
    assert "channels_last" in str(graph.graph.module.code)


def test_on_a_cpu_all_stays_as_it_is() -> None:
    compiled = bridge.compile(nn.Conv2d(16, 16, 3))
    compiled(torch.randn(2, 16, 8, 8))
    (graph, *_) = bridge.inspect(compiled).graphs
    (node,) = [node for node in graph.graph.nodes if node.target is torch.ops.aten.convolution.default]
    assert node.meta["val"].is_contiguous()
