"""A dry run tells what compiling tells, compiles nothing, and leaves everything as it was."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import bridge
from bridge import generation, pipeline
from bridge.errors import BadOption, NotCompilable
from bridge.ir.joint import Graph, Phase, Role
from bridge.ir.tally import tally
from bridge.ledger import DeadEnd, Ledger, Placement
from bridge.ledger.jsonl import read, write
from bridge.options import Options


class Net(nn.Module):
    """Has a node for each of generated, library and fallback, and a buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.GELU())

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"power": torch.linalg.matrix_exp(self.layers(x)[:, :6]), "rows": torch.arange(3)}


@pytest.fixture
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("a dry run lowers nothing and builds nothing")

    for room, name in ((generation, "lower"), (generation, "build"), (pipeline, "program")):
        monkeypatch.setattr(room, name, never)


def test_it_tells_what_compiling_tells() -> None:
    net, x = Net(), torch.linspace(-1, 1, 24).reshape(6, 4)
    dry = bridge.coverage(net, x)
    compiled = bridge.compile(net)
    compiled(x)["power"].sum().backward()
    assert dry.placement == compiled.placement
    assert set(dry.placement) == {"forward", "backward"}
    assert all(ways["generated"] and ways["fallback"] for ways in dry.placement.values())
    assert {event.op for event in dry.ledger} == {event.op for event in compiled.ledger}


@pytest.mark.usefixtures("nothing_is_compiled")
def test_everything_stays_as_it_was() -> None:
    net, x = Net(), torch.randn(6, 4, requires_grad=True)
    net.layers[0].weight.grad = gradient = torch.ones(8, 4)
    before, generator = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    bridge.coverage(net, x)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert net.layers[0].weight.grad is gradient
    assert torch.equal(gradient, torch.ones(8, 4))
    assert net.layers[0].bias.grad is None
    assert x.grad is None
    assert net.training


@pytest.mark.usefixtures("nothing_is_compiled")
def test_the_loss_is_the_users() -> None:
    asked: list[Any] = []

    def loss(output: dict[str, torch.Tensor]) -> torch.Tensor:
        asked.append(output)
        return output["power"].mean()

    assert "backward" in bridge.coverage(Net(), torch.randn(6, 4), loss_fn=loss).placement
    assert set(asked[0]) == {"power", "rows"}


@pytest.mark.usefixtures("nothing_is_compiled")
def test_no_gradient_is_inference() -> None:
    with torch.no_grad():
        assert set(bridge.coverage(Net(), x=torch.randn(6, 4)).placement) == {"inference"}
    assert set(bridge.coverage(torch.sin, torch.ones(2)).placement) == {"inference"}


@pytest.mark.usefixtures("nothing_is_compiled")
def test_what_the_user_computed_keeps_its_graph() -> None:
    weight = torch.ones(3, requires_grad=True)
    x = weight * 2
    found = bridge.coverage(lambda x, y: (x * y).tanh(), x, y=x)
    assert "backward" in found.placement
    assert weight.grad is None
    x.sum().backward()
    assert torch.equal(weight.grad, torch.full((3,), 2.0))  # type: ignore[arg-type]


def test_what_holds_no_tensor_needs_a_loss() -> None:
    class Result:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    def wrapped(x: torch.Tensor) -> Result:
        return Result(x.sin())

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(BadOption, match="no tensor is found in the Result that the model gives: pass loss_fn"):
        bridge.coverage(wrapped, x)
    assert "backward" in bridge.coverage(wrapped, x, loss_fn=lambda result: result.x.sum()).placement
    with pytest.raises(BadOption, match="gives Result: give a function to a loss"):
        bridge.coverage(wrapped, x, loss_fn=lambda result: result)
    with pytest.raises(NotCompilable):
        bridge.coverage(3)


def test_options_reach_the_placement() -> None:
    layer, x = nn.Linear(64, 64), torch.randn(8, 64)
    by_library = bridge.coverage(layer, x).placement["forward"]
    generated = bridge.coverage(bridge.compile(layer), x, library=False).placement["forward"]
    assert (by_library["library"], generated["library"]) == (1, 0)
    assert generated["generated"] == by_library["generated"] + 1
    dynamic = bridge.coverage(torch.special.airy_ai, x, dynamic=True).ledger.select(dead_end=DeadEnd.COVERAGE)
    assert dynamic[0].sizes == ((8, 64),)
    assert all(isinstance(size, str) for size in dynamic[0].shapes[0])


def test_records_go_to_a_file_with_what_they_cost(tmp_path: Any) -> None:
    records = bridge.coverage(Net(), torch.randn(6, 4)).records("net")
    write(tmp_path / "ledger.jsonl", records)
    assert list(read(tmp_path / "ledger.jsonl").records) == records
    placements = [record for record in records if isinstance(record, Placement)]
    (product,) = [one for one in placements if one.op == "aten.addmm.default"]
    assert (product.flops, product.bytes) == (2 * 6 * 4 * 8, 4 * (6 * 4 + 4 * 8 + 8 + 6 * 8))
    assert all(one.seconds is not None and one.seconds > 0 for one in placements)


def test_a_graph_of_a_thousand_nodes_takes_less_than_two_seconds() -> None:
    """After its capture: passes, placement, and the records with their estimates."""

    def long(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(200):
            x = (x @ y).tanh() * 2 + x.cumsum(0)
        return x

    module = make_fx(long, tracing_mode="fake")(torch.ones(2, 2), torch.ones(2, 2))
    graph = Graph("graph_0", Phase.INFERENCE, module, (Role.INPUT, Role.INPUT), (Role.OUTPUT,))
    bridge.coverage(torch.sin, torch.ones(2))  # loads TVM
    start = perf_counter()
    records = tally([pipeline.plan_graph(graph, Options(), Ledger())])
    assert perf_counter() - start < 2
    assert sum(record.nodes for record in records) == 1000
