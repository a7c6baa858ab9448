"""Estimates are those of the formulas, over sizes that are numbers or symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import bridge
from bridge.ir.cost import Cost, cost
from bridge.ir.nodes import computes
from bridge.ledger import Placement

aten = torch.ops.aten
Mode = Literal["fake", "symbolic"]


def nodes(function: Callable[..., Any], *inputs: torch.Tensor, mode: Mode = "fake") -> list[fx.Node]:
    return [node for node in make_fx(function, tracing_mode=mode)(*inputs).graph.nodes if computes(node)]


def cost_of(function: Callable[..., Any], *inputs: torch.Tensor, mode: Mode = "fake") -> Cost:
    (node,) = nodes(function, *inputs, mode=mode)
    return cost(node)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_a_matrix_product(mode: Mode) -> None:
    found = cost_of(torch.mm, torch.ones(3, 5), torch.ones(5, 7, dtype=torch.float32), mode=mode)
    assert found == Cost(2 * 3 * 5 * 7, 4 * (15 + 35 + 21))


def test_elsewhere_one_for_each_element() -> None:
    x = torch.ones(3, 5, dtype=torch.float64)
    assert cost_of(torch.tanh, x) == Cost(15, 8 * 30)
    assert cost_of(torch.sum, x) == Cost(1, 8 * 16)
    assert cost_of(torch.sort, x) == Cost(30, 8 * 15 + 16 * 15)


def test_a_tensor_is_read_once_and_a_repeated_dimension_is_one_element() -> None:
    assert cost_of(lambda x: x * x, torch.ones(10)) == Cost(10, 80)
    assert cost_of(torch.add, torch.ones(1).expand(10), torch.ones(10)) == Cost(10, 4 + 40 + 40)
    assert cost_of(torch.tanh, torch.ones(0, 4)) == Cost(0, 0)


@pytest.mark.parametrize(
    "view", [lambda x: x.view(6, 2), lambda x: x.t(), lambda x: x[1:], lambda x: aten._unsafe_view.default(x, [12])]
)
def test_a_view_costs_nothing(view: Callable[..., Any]) -> None:
    assert {cost(node) for node in nodes(view, torch.ones(3, 4))} == {Cost(0, 0)}


def test_what_depends_on_values_is_not_known() -> None:
    symbolic = nodes(lambda x: torch.nonzero(x).sin(), torch.ones(4), mode="symbolic")
    assert [cost(node) for node in symbolic][-1] == Cost(None, None)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convolution(x).flatten(2).mT
        return (self.linear(x) @ x.mT).sum()


@pytest.mark.parametrize("dynamic", [False, True])
def test_forward_and_backward_agree_with_torchs_counter(dynamic: bool) -> None:
    net, x = Net(), torch.ones(2, 3, 12, 12)
    with FlopCounterMode(display=False) as counter:
        net(x).backward()
    counted = {f"aten.{op}.default" for op in ("convolution", "convolution_backward", "mm", "addmm", "bmm")}
    records = bridge.coverage(net, x, dynamic=dynamic).records()
    placements = [one for one in records if isinstance(one, Placement) and one.op in counted]
    assert sum(one.flops or 0 for one in placements) == counter.get_total_flops()


def test_attention_on_a_cpu() -> None:
    q, k = torch.ones(2, 3, 5, 8, requires_grad=True), torch.ones(2, 3, 7, 8, requires_grad=True)
    records = bridge.coverage(nn.functional.scaled_dot_product_attention, q, k, k).records()
    flops = {one.op: one.flops for one in records if isinstance(one, Placement)}
    product = 2 * 3 * 2 * 5 * 8 * 7
    assert flops["aten._scaled_dot_product_flash_attention_for_cpu.default"] == 2 * product
    assert flops["aten._scaled_dot_product_flash_attention_for_cpu_backward.default"] == 5 * product
