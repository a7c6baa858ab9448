"""A pooling saves a byte for each of the largest, which leads its gradient to where it lay."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.ledger import Way
from bridge.passes.narrow_places import narrow_places
from tests.backends.tvm.emulated import emulated


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow as on a GPU."""
    monkeypatch.setattr(sys.modules[narrow_places.__module__], "_is_fit", lambda node, places: True)


class Net(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 1)
        self.pool = nn.MaxPool2d(**how)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.first(x).sin())


@pytest.mark.parametrize(
    "how",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": (3, 1), "padding": (0, 1), "dilation": (2, 3)},
        {"kernel_size": 2, "ceil_mode": True},
    ],
    ids=["resnet", "dilated", "beyond"],
)
def test_gradients(wanted: None, how: dict[str, Any]) -> None:
    net, x = Net(**how), torch.randn(2, 2, 9, 11)
    eager = copy.deepcopy(net)
    with emulated():
        compiled = bridge.compile(net, options={"cache": False})
        compiled(x).square().sum().backward()
    eager(x).square().sum().backward()
    for mine, own in zip(net.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, own.grad, rtol=1e-4, atol=1e-5)
    forward = bridge.inspect(compiled).graphs[0]
    saved = {n.meta["val"].dtype for n in forward.graph.nodes[-1].all_input_nodes}
    assert torch.int8 in saved
    assert torch.int64 not in saved
    assert Way.FALLBACK not in forward.placement.values()


def test_a_step(wanted: None) -> None:
    net, x = Net(kernel_size=3, stride=2, padding=1), torch.randn(2, 2, 9, 11)
    eager = copy.deepcopy(net)
    mine, own = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (net, eager))
    step = bridge.compile_step(net, mine, lambda result: result.square().sum(), options={"cache": False})
    step(x)
    eager(x).square().sum().backward()
    own.step()
    torch.testing.assert_close(list(net.parameters()), list(eager.parameters()))
    assert "torch.int8" in str(bridge.inspect(step).graphs[0].graph.module.code)


def test_places_that_the_user_wants_stay(wanted: None) -> None:
    compiled = bridge.compile(lambda x: nn.functional.max_pool2d(x.sin(), 2, return_indices=True))
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    values, places = compiled(x)
    values.sum().backward()
    assert places.dtype == torch.int64
    expected, own = nn.functional.max_pool2d(x.sin(), 2, return_indices=True)
    torch.testing.assert_close((values, places), (expected, own))


def test_on_a_cpu_all_stays_as_it_is() -> None:
    net = Net(kernel_size=2)
    compiled = bridge.compile(net)
    compiled(torch.randn(1, 2, 6, 6))
    results = bridge.inspect(compiled).graphs[0].graph.nodes[-1].all_input_nodes
    assert torch.int64 in {node.meta["val"].dtype for node in results}
