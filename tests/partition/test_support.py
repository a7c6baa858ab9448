"""Who takes a node, and what the ledger says about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import bridge
from bridge.backends.eager import Eager
from bridge.backends.library import Library
from bridge.ir.backend import Refusal
from bridge.ir.joint import Graph, Phase
from bridge.ir.nodes import op_name
from bridge.ledger import DeadEnd, Ledger
from bridge.partition.support import place


@dataclass
class Picky:
    """Refuses some ops, and keeps count of who asked."""

    name: str
    refused: frozenset[str]
    asked: list[str] = field(default_factory=list)

    def accepts(self, node: fx.Node) -> Refusal | None:
        self.asked.append(node.name)
        if op_name(node) in self.refused:
            return Refusal(DeadEnd.COVERAGE, f"{self.name} has no {op_name(node)}", "no row")
        return None


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    values, order = torch.cummax(torch.native_dropout(x @ w, 0.5, True)[0], 0)
    return values.exp() + order


def graph_of(function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False) -> Graph:
    module = make_fx(function, tracing_mode="symbolic" if dynamic else "fake")(*inputs)
    return Graph("graph_7", Phase.FORWARD, module, (), ())


@pytest.fixture
def graph() -> Graph:
    return graph_of(model, torch.ones(64, 64), torch.ones(64, 5))


def by_op(graph: Graph, placement: dict[str, str]) -> dict[str, str]:
    return {op_name(node): placement[node.name] for node in graph.nodes if node.name in placement}


def test_the_first_that_accepts_takes_the_node_and_a_refusal_is_one_event(graph: Graph) -> None:
    tvm, inductor = (
        Picky("tvm", frozenset({"aten.cummax.default"})),
        Picky("inductor", frozenset({"aten.cummax.default"})),
    )
    ledger = Ledger()
    placed = by_op(graph, place(graph, [tvm, inductor, Eager()], ledger, [Library()]))
    assert placed["aten.cummax.default"] == "eager"
    assert placed["aten.exp.default"] == placed["aten.add.Tensor"] == "tvm"
    assert placed["aten.mm.default"] == placed["aten.native_dropout.default"] == "library"
    (event,) = ledger
    assert (event.dead_end, event.op, event.kind) == (DeadEnd.COVERAGE, "aten.cummax.default", "no row")
    assert (event.graph, event.phase, event.backend) == ("graph_7", "forward", "eager")
    assert (event.shapes, event.dtypes) == (((64, 5),), ("float32",))
    assert event.detail == "tvm has no aten.cummax.default"
    assert len(tvm.asked) == len(set(tvm.asked))
    assert not set(tvm.asked) & {node.name for node in graph.nodes if placed.get(op_name(node)) == "library"}


def test_without_the_vendors_library_only_random_ops_are_called_out(graph: Graph) -> None:
    ledger = Ledger()
    placed = by_op(graph, place(graph, [Picky("tvm", frozenset()), Eager()], ledger, [Library(vendor=False)]))
    assert placed["aten.mm.default"] == "tvm"
    assert placed["aten.native_dropout.default"] == "library"
    assert len(ledger) == 0


def test_a_product_of_small_matrices_is_no_librarys() -> None:
    def products(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ w, torch.addmm(b, x, w), torch.bmm(x[None], w[None]), torch.baddbmm(b[None, None], x[None], w[None])

    for columns, takes in ((16, "tvm"), (17, "library")):
        for dynamic in (False, True):
            graph = graph_of(
                products, torch.ones(32, 32), torch.ones(32, columns), torch.ones(columns), dynamic=dynamic
            )
            placed = by_op(graph, place(graph, [Picky("tvm", frozenset())], Ledger(), [Library()]))
            taken = {placed[f"aten.{name}.default"] for name in ("mm", "addmm", "bmm", "baddbmm")}
            assert taken == {"library" if dynamic else takes}


class Slow(Picky):
    """A backend that has tried what it refuses."""

    def accepts(self, node: fx.Node) -> Refusal | None:
        kind = "build failed" if op_name(node) == "aten.exp.default" else "slower"
        return Refusal(DeadEnd.MAINTENANCE, f"{self.name} tried", kind)


def test_what_others_found_out_by_trying_is_told_with_the_reason(graph: Graph) -> None:
    ledger = Ledger()
    place(graph, [Picky("tvm", frozenset({"aten.cummax.default"})), Slow("triton", frozenset()), Eager()], ledger)
    assert [event.detail for event in ledger] == ["tvm has no aten.cummax.default; triton tried"]


def test_a_failed_build_of_what_is_asked_by_choice_is_an_event_and_a_slower_kernel_is_none(graph: Graph) -> None:
    ledger = Ledger()
    tvm = Picky("tvm", frozenset())
    assert set(place(graph, [tvm], ledger, [Slow("triton", frozenset())]).values()) == {"tvm"}
    assert [(event.op, event.backend) for event in ledger] == [("aten.exp.default", "tvm")]


def test_sizes_and_picks_are_not_placed() -> None:
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x.sort()[0].reshape(x.shape[0] * 2, x.shape[1] // 2) * x.shape[0]

    graph = graph_of(halve, torch.ones(3, 4), dynamic=True)
    placement = place(graph, [Eager()], Ledger())
    computing = {node.name for node in graph.nodes if node.op == "call_function" and "getitem" not in node.name}
    sizes = {node.name for node in graph.nodes if isinstance(node.meta.get("val"), torch.SymInt)}
    assert sizes
    assert set(placement) == computing - sizes


def test_a_symbolic_size_is_kept_by_its_name() -> None:
    graph = graph_of(lambda x: x.cummax(0)[0], torch.ones(3, 4), dynamic=True)
    ledger = Ledger()
    place(graph, [Picky("tvm", frozenset({"aten.cummax.default"})), Eager()], ledger)
    (event,) = ledger
    assert len(event.shapes) == 1
    assert all(isinstance(size, str) and size.startswith("s") for size in event.shapes[0])


def test_an_order_that_takes_not_everything_is_an_error(graph: Graph) -> None:
    with pytest.raises(ValueError, match=r"none of the backends \(tvm\) takes aten.cummax.default.*eager"):
        place(graph, [Picky("tvm", frozenset({"aten.cummax.default"}))], Ledger())


def test_what_is_not_on_the_cpu_runs_as_in_eager() -> None:
    """No kernel is called on memory that it cannot reach."""
    compiled = bridge.compile(lambda x: x.sin() + 1)
    assert compiled(torch.ones(3, device="meta")).device.type == "meta"
    assert {event.kind for event in compiled.ledger} == {"device"}
    assert compiled(torch.ones(3)).device.type == "cpu"
