"""A report says what the file says, in every form."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from bridge.ledger import DeadEnd, Event, Measure, Placement, Record, Way
from bridge.ledger.jsonl import LedgerFile, read, write
from bridge.report.coverage import coverage
from bridge.report.figure import write_figure
from bridge.report.html import report_html
from bridge.report.json import report_json
from bridge.report.report import Report, make_report
from bridge.report.terminal import print_report

ATTACK = "<script>alert('é')</script> [red]x[/red]"
RECORDS: list[Record] = [
    Placement("aten.mm.default", Way.LIBRARY, 4, "graph_0", "forward", "net"),
    Placement("aten.add.Tensor", Way.GENERATED, 15, "graph_0", "forward", "net"),
    Placement("aten.sort.default", Way.FALLBACK, 1, "graph_0", "backward", "net"),
    Event(DeadEnd.COVERAGE, "aten.sort.default", "no row", "no row", "graph_0", "backward", "eager", 1, model="net"),
    Event(DeadEnd.COVERAGE, "aten.sort.default", "no row", "no row", "graph_1", "backward", "eager", 2, model="net"),
    Event(DeadEnd.MAINTENANCE, "aten.exp.default", ATTACK, source=f"m.py:1 in f: {ATTACK}", model="net"),
    Event(DeadEnd.COVERAGE, "print", "a graph break", "uncaptured", phase="forward", model="net"),
    Measure("loss", (2.0, 1.0, 0.5), target="eager", model="net"),
    Measure("loss", (2.0, 1.5, 0.5), target="tvm", model="net"),
    Measure("first call", (3.0,), "s", "tvm", "net"),
    Measure("step", (0.010, 0.020, 0.030, 0.040, 0.5), "s", "tvm", "net"),
    Measure("test accuracy", (97.5,), "%", "tvm", "net"),
    Event(DeadEnd.DYNAMIC_SHAPE, "aten.view.default", "symbolic", model="other"),
]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    write(tmp_path / "ledger.jsonl", RECORDS, {"command": "bridge demo", "net": "a net"})
    return make_report(read(tmp_path / "ledger.jsonl"))


def printed(report: Report, width: int = 120) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=width))
    return file.getvalue()


def test_coverage_counts_nodes_and_events(report: Report) -> None:
    net, other = report.models
    assert (net.name, other.name) == ("net", "other")
    assert net.coverage.phases["forward"] == {
        Way.GENERATED: 15,
        Way.LIBRARY: 4,
        Way.FALLBACK: 0,
        Way.UNCAPTURED: 1,
    }
    assert net.coverage.total[Way.FALLBACK] == 1
    assert net.coverage.nodes == 21
    assert net.coverage.dead_ends[DeadEnd.COVERAGE] == 4
    assert report.dead_ends[DeadEnd.DYNAMIC_SHAPE] == 1
    first = net.coverage.reasons[0]
    assert (first.op, first.count, first.phases) == ("aten.sort.default", 3, ("backward",))


def test_training_compares_with_eager(report: Report) -> None:
    training = report.models[0].training
    assert training.largest_difference("tvm") == (0.5, 2)
    assert training.largest_difference("eager") == (0.0, 1)
    assert training.largest_difference("inductor") is None
    (timing,) = training.timings
    assert (timing.first_call, timing.step, timing.readings) == (3.0, 0.03, 5)
    assert (timing.low, timing.high) == (pytest.approx(0.015), pytest.approx(0.27))


@pytest.mark.parametrize(("other", "largest"), [(math.nan, math.inf), (math.inf, math.inf), (1.0, 0.0)])
def test_a_loss_that_is_no_number_is_never_equal(other: float, largest: float) -> None:
    records = (Measure("loss", (1.0,), target="eager"), Measure("loss", (other,), target="tvm"))
    (model,) = make_report(LedgerFile({}, records)).models
    assert model.training.largest_difference("tvm") == (largest, 1)


def test_the_terminal_shows_everything(report: Report) -> None:
    text = printed(report)
    for expected in ("net", "aten.sort.default", "97.5 %", "30.0 ms", "3.00 s", "5.0e-01", "step 2 of 3", "a net"):
        assert expected in text
    assert "[red]x[/red]" in text.replace("\n", "")
    assert max(len(line) for line in printed(report, width=60).splitlines()) <= 60


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(report: Report) -> None:
    page = report_html(report)
    assert not re.search(r"""(src|href)\s*=|https?://|@import|url\(""", page)
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#39;é&#39;)" in page
    for expected in ("aten.sort.default", "97.5 %", "30.0 ms", "3.00 s", "5.0e-01", 'class="curve series-2"'):
        assert expected in page


def test_json_is_json_even_of_what_is_no_number(report: Report) -> None:
    content = json.loads(report_json(report))
    net = content["models"][0]
    assert net["placement"]["forward"]["generated"] == 15
    assert net["reasons"][0]["op"] == "aten.sort.default"
    assert net["largest_difference"]["tvm"] == {"relative": 0.5, "step": 2}
    broken = make_report(LedgerFile({}, (Measure("loss", (math.nan,)),)))
    assert json.loads(report_json(broken))["models"][0]["losses"] == {"": [None]}


@pytest.mark.parametrize("records", [(), (Measure("loss", ()),), (Measure("loss", (math.nan,)),), (RECORDS[0],)])
def test_little_or_broken_content_is_still_a_report(records: tuple[Record, ...], tmp_path: Path) -> None:
    report = make_report(LedgerFile({}, records))
    printed(report)
    assert "</html>" in report_html(report)
    write_figure(report, tmp_path / "losses.png")


def test_the_figure_is_a_picture(report: Report, tmp_path: Path) -> None:
    write_figure(report, tmp_path / "losses.png")
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")


def test_buffers_of_one_name_are_one_reason() -> None:
    events = [
        Event(DeadEnd.INPLACE_OPTIMIZER, f"layers.{n}.running_mean", "changed in place", kind="copied back")
        for n in range(3)
    ]
    (reason,) = coverage(events, []).reasons
    assert (reason.op, reason.count) == ("running_mean", 3)
