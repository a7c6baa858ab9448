"""A graph is edited in a copy, which is checked and written as code once."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from bridge.ir.joint import Graph, Phase, Role, rewritten
from bridge.ledger import Ledger
from bridge.passes import PASSES, WITHOUT_LIBRARY

aten = torch.ops.aten


def graph_of() -> Graph:
    module = make_fx(lambda x: (x.sin().relu(),), tracing_mode="fake")(torch.randn(3))
    return Graph("graph_0", Phase.FORWARD, module, (Role.INPUT,), (Role.OUTPUT,))


def with_cosines(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.sin.default):
        node.target = aten.cos.default


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """The modules for which torch writes code, as often as it does."""
    seen: list[fx.GraphModule] = []
    recompile = fx.GraphModule.recompile
    monkeypatch.setattr(fx.GraphModule, "recompile", lambda self: seen.append(self) or recompile(self))
    return seen


def test_an_edit_leaves_the_graph_as_it_was(written: list[fx.GraphModule]) -> None:
    graph = graph_of()
    before = [(node.name, node.target) for node in graph.nodes]
    written.clear()
    made = rewritten(graph, with_cosines)
    assert len(written) == 1
    assert [(node.name, node.target) for node in graph.nodes] == before
    assert torch.equal(made.module(torch.zeros(3))[0], torch.ones(3))
    assert [node.meta.get("val") is not None for node in made.nodes] == [
        n.meta.get("val") is not None for n in graph.nodes
    ]


def test_an_edit_is_checked() -> None:
    def moved(graph: fx.Graph) -> None:
        first, second = (node for node in graph.nodes if node.op == "call_function")
        second.append(first)

    with pytest.raises(RuntimeError, match="used before it has been defined"):
        rewritten(graph_of(), moved)


@pytest.mark.parametrize("passes", [PASSES, WITHOUT_LIBRARY], ids=["library", "without"])
def test_passes_that_find_nothing_to_do_copy_nothing(passes: tuple, written: list[fx.GraphModule]) -> None:
    graph = graph_of()
    written.clear()
    for improve in passes:
        assert improve(graph, Ledger()) is graph
    assert not written


def test_the_device_of_a_graph_is_that_of_its_tensors() -> None:
    assert graph_of().device == torch.device("cpu")
