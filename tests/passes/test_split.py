"""The split of a joint graph, and what a checkpoint may not draw twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import bridge
from bridge.ir.joint import Role
from bridge.ir.nodes import is_random
from bridge.passes.split import SPLITS
from tests.backends.tvm.emulated import emulated


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.dropout((x @ weight).sin(), 0.5).cos() * torch.rand_like(x)


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    result: Any = checkpoint(block, x, weight, use_reentrant=False)
    return result.sum()


@pytest.mark.parametrize("split", SPLITS)
def test_a_checkpoint_draws_once_and_recomputes_the_rest(split: Any) -> None:
    given = [torch.randn(6, 6, requires_grad=True) for _ in range(2)]
    reference = copy.deepcopy(given)
    compiled = bridge.compile(program, "eager", partitioner=split)
    for function, inputs in ((compiled, given), (program, reference)):
        torch.manual_seed(1)
        function(*inputs).backward()
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(given, reference))  # type: ignore[arg-type]
    forward, backward = (graph.graph for graph in bridge.inspect(compiled).graphs)
    assert sum(is_random(node) for node in forward.nodes) == 2
    assert not any(is_random(node) for node in backward.nodes)
    assert torch.ops.aten.sin.default in {node.target for node in backward.nodes}


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.norm(self.linear(x)).relu(), 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: Any = checkpoint(self.block, x, use_reentrant=False) if self.training else self.block(x)
        return result.square().sum()


@pytest.mark.parametrize("target", ["eager", "tvm"])
def test_a_checkpoint_around_a_batch_norm_updates_its_statistics_once(target: str) -> None:
    torch.manual_seed(0)
    model = Normed()
    reference = copy.deepcopy(model)
    compiled = bridge.compile(model, target)
    for seed in range(3):
        x = torch.randn(4, 8)
        for module, block in ((compiled, compiled), (reference, lambda x: reference.block(x).square().sum())):
            torch.manual_seed(seed)
            module.zero_grad()
            block(x).backward()
        for one, other in zip(compiled.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)
        for one, other in zip(compiled.buffers(), reference.buffers(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert [graph.runs for graph in bridge.inspect(compiled).graphs] == [[3], [3]]


class Activated(nn.Module):
    """Norms whose results are read pointwise, and by a product, which needs what it reads in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.batch, self.group = nn.BatchNorm2d(6), nn.GroupNorm(3, 6)
        self.bare = nn.BatchNorm2d(6, affine=False)
        self.last = nn.Conv2d(6, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.group(F.elu(self.batch(x)) + x)).sin()
        return self.last(self.bare(y)).square().sum()


@pytest.mark.parametrize("lies", [torch.contiguous_format, torch.channels_last])
def test_the_result_of_a_norm_is_computed_again_rather_than_saved(lies: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = Activated()
    reference = copy.deepcopy(model)
    x = torch.randn(4, 6, 5, 7).to(memory_format=lies)
    given, plain = (x.clone().requires_grad_() for _ in range(2))
    compiled = bridge.compile(model)
    for net, value in ((compiled, given), (reference, plain)):
        net(value).backward()
    torch.testing.assert_close(given.grad, plain.grad)
    for (name, one), (_, other) in zip(model.named_parameters(), reference.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    for (name, one), (_, other) in zip(model.named_buffers(), reference.named_buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
    forward, _ = bridge.inspect(compiled).graphs
    saved = [
        value
        for value, role in zip(forward.graph.returned, forward.graph.outputs, strict=True)
        if role is Role.SAVED and value.meta["val"].numel() == x.numel()
    ]
    if lies is torch.contiguous_format:  # what the norms are given, and what the convolution reads
        assert len(saved) == 4, [value.name for value in saved]


def test_16_bit_images_by_channels_are_normalised_again_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As told there: in float32, from the statistics that the backward reads."""
    monkeypatch.setattr("bridge.passes.norms._is_plain", lambda *_: True)
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())
    reference = copy.deepcopy(net)
    x = torch.randn(4, 8, 5, 7, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    given, plain = (x.clone().requires_grad_() for _ in range(2))
    with emulated():
        compiled = bridge.compile(net, options={"cache": False})
        compiled(given).float().square().sum().backward()
    reference(plain).float().square().sum().backward()
    torch.testing.assert_close(given.grad, plain.grad, rtol=5e-2, atol=5e-2)  # a CPU's statistics have 16 bits too
    graph = bridge.inspect(compiled).graphs[0].graph
    saved = [v for v, role in zip(graph.returned, graph.outputs, strict=True) if role is Role.SAVED]
    held = [value.meta["val"].nbytes for value in saved if value.meta["val"].shape == x.shape]
    assert sum(held) <= 1.5 * x.nbytes, "what the norm was given, and a mask at most"
