"""Forward and backward as one graph."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.ir.joint import Phase, Role


class Net(nn.Module):
    """A loss, with dropout, running statistics, a parameter that is used twice and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(F.gelu(self.norm(self.first(self.first(x)))), 0.3)
        return F.cross_entropy(self.second(hidden), y)


def trained(model: Any, scale: float, sizes: tuple[int, ...] = (16, 16, 16)) -> list[Any]:
    """Losses, gradients and buffers of a few steps, the loss multiplied by a number."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / scale)
    found: list[Any] = []
    for size in sizes:
        x, y = torch.randn(size, 8, requires_grad=True), torch.randint(4, (size,))
        optimizer.zero_grad()
        loss = model(x, y)
        (loss * scale).backward()
        found += [loss.detach(), x.grad, *(None if p.grad is None else p.grad.clone() for p in model.parameters())]
        optimizer.step()
    return [*found, *(b.clone() for b in model.buffers())]


@pytest.mark.parametrize("scale", [1.0, 128.0, 0.3])
def test_steps_are_those_of_eager(scale: float) -> None:
    torch.manual_seed(1)
    model = Net()
    compiled = bridge.compile(copy.deepcopy(model), fuse_joint=True)
    for found, wanted in zip(trained(compiled, scale), trained(model, scale), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6 * scale)
    forward, backward = bridge.inspect(compiled).graphs
    assert (forward.graph.phase, backward.graph.phase) == (Phase.FORWARD, Phase.BACKWARD)
    assert forward.runs == [3]
    assert backward.runs == [0 if scale == 1 else 3]
    assert set(backward.graph.inputs) == {Role.SAVED, Role.TANGENT}
    products = {node.target for node in backward.graph.nodes if node.op == "call_function"}
    assert products == {torch.ops.aten.mul.Tensor}
    assert not bridge.inspect(compiled).ledger.select(kind="not fused")


def test_sizes_may_be_symbols() -> None:
    torch.manual_seed(1)
    model = Net()
    compiled = bridge.compile(copy.deepcopy(model), fuse_joint=True, dynamic=True)
    sizes = (16, 5, 33)
    for found, wanted in zip(trained(compiled, 1.0, sizes), trained(model, 1.0, sizes), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6)
    assert len(bridge.inspect(compiled).graphs) == 2


def test_a_loss_may_have_dimensions_of_one_and_gradients_another_type() -> None:
    def loss(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return (x.float().square().sum() * s.float()).reshape(1, 1)

    given = [torch.randn(4, dtype=torch.bfloat16), torch.tensor(2.0, dtype=torch.bfloat16)]
    mine, theirs = ([t.clone().requires_grad_() for t in given] for _ in range(2))
    compiled = bridge.compile(loss, fuse_joint=True)
    for call, inputs in ((compiled, mine), (loss, theirs)):
        call(*inputs).backward(torch.full((1, 1), 3.0))
    for one, other in zip(mine, theirs):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-2, atol=0)
    assert len(bridge.inspect(compiled).graphs[1].graph.inputs) == 3


def test_what_is_added_to_a_loss_has_its_gradient() -> None:
    """And what it is multiplied by has an input as its gradient."""
    x, offset, factor = torch.randn(3), torch.randn((), requires_grad=True), torch.randn(3, requires_grad=True)
    compiled = bridge.compile(lambda x: (x * factor).sum() + offset, fuse_joint=True)
    for scale in (1.0, 0.5):
        offset.grad = factor.grad = None
        (compiled(x) * scale).backward()
        torch.testing.assert_close((offset.grad, factor.grad), (torch.tensor(scale), x * scale))
    assert not compiled.ledger, "it is one program"


def test_twice_over_one_graph() -> None:
    """A gradient that was handed out is not changed when the same backward runs again."""
    model = nn.Linear(3, 1)
    compiled = bridge.compile(lambda x: model(x).sum(), fuse_joint=True)
    loss = compiled(torch.ones(2, 3))
    for _ in range(3):
        loss.backward(retain_graph=True)
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((1, 3), 6.0))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (x.sum(), x.sin().sum()), "2 results have gradients"),
        (lambda x: x.sin(), "no single number"),
        (lambda x: x.half().sin().sum(), "float16"),
    ],
)
def test_what_is_no_loss_stays_two_programs(function: Any, reason: str) -> None:
    x = torch.randn(4, requires_grad=True)
    compiled = bridge.compile(function, fuse_joint=True)
    result = compiled(x)
    sum(r.float().sum() for r in (result if isinstance(result, tuple) else (result,))).backward()  # type: ignore[union-attr]
    (event,) = bridge.inspect(compiled).ledger.select(kind="not fused")
    assert reason in event.detail
