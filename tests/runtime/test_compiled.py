"""What a compilation tells of itself."""

from __future__ import annotations

import gc
import io

import torch
from rich.console import Console
from torch import nn

import bridge
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.options import Options
from bridge.runtime.compiled import LIVE, Compilation


def printed(compilation: Compilation) -> str:
    console = Console(file=io.StringIO(), width=200)
    compilation.explain(console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_placement_counts_nodes_by_phase_and_way() -> None:
    compiled = bridge.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "eager")
    assert compiled.placement == {}
    compiled(torch.randn(2, 4)).sum().backward()
    graphs = bridge.inspect(compiled).graphs
    for graph in graphs:
        counts = compiled.placement[graph.graph.phase.value]
        assert counts == {"generated": 0, "library": 0, "fallback": len(graph.placement), "uncaptured": 0}
    assert set(compiled.placement) == {"forward", "backward"}


def test_ledger_and_compilation_print_as_a_line() -> None:
    compilation = Compilation(Options(), Ledger())
    assert repr(compilation.ledger) == "<ledger of 0 events>"
    compilation.ledger.record(Event(DeadEnd.COVERAGE, "aten.sort.default", "", "no row", count=3))
    assert repr(compilation) == "<compilation for tvm: 0 graphs, {}, <ledger of 1 event: coverage 3>>"


def test_what_was_left_out_of_every_graph_is_counted_as_uncaptured() -> None:
    compilation = Compilation(Options(), Ledger())
    compilation.ledger.record(Event(DeadEnd.COVERAGE, "call", "skipped", kind="uncaptured", count=3))
    assert compilation.placement["forward"]["uncaptured"] == 3


def test_explain_shows_ways_reasons_and_lines() -> None:
    compilation = Compilation(Options(), Ledger())
    line = "model.py:12 in forward: y = torch.sort(x)"
    for node in ("sort", "sort_1"):
        compilation.ledger.record(
            Event(
                DeadEnd.COVERAGE, "aten.sort.default", "stable=[x]", "no row", backend="eager", source=line, node=node
            )
        )
    text = printed(compilation)
    assert "call it once" in text
    row = next(row for row in text.splitlines() if "aten.sort.default" in row)
    for part in ("2", "coverage", "no row: stable=[x]", "eager", line):
        assert part in row


def test_explain_of_a_clean_compilation() -> None:
    compiled = bridge.compile(torch.sin, "eager")
    compiled(torch.ones(2))
    text = printed(bridge.inspect(compiled))
    assert "inference" in text
    assert "No dead end was met" in text


def test_a_compilation_that_nobody_holds_is_forgotten() -> None:
    compiled = bridge.compile(torch.cos, "eager")
    compilation = bridge.inspect(compiled)
    assert compilation in LIVE
    before = len(LIVE)
    torch._dynamo.reset()
    del compiled, compilation
    gc.collect()
    assert len(LIVE) < before
