"""The coverage report: five quantities, what to write next, programs that show fallbacks, peers, and a baseline."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

import bridge
from bridge.ledger import DeadEnd, Event, PeerAnswer, Placement, Record, Way
from bridge.ledger.jsonl import LedgerFile
from bridge.report.amounts import Quantity, amounts
from bridge.report.cover import Step, cover
from bridge.report.coverage import RAISED, coverage
from bridge.report.difference import Change, difference
from bridge.report.html import report_html
from bridge.report.json import report_json
from bridge.report.numbers import amount
from bridge.report.overview import print_difference
from bridge.report.report import Report, make_report
from bridge.report.repro import repro, write_repros
from bridge.report.terminal import print_report

G, L, F, U = Way
PLACEMENTS = [
    Placement("mm", L, 1, phase="forward", flops=1000, bytes=400, seconds=0.5),
    Placement("add", G, 3, phase="forward", flops=30, bytes=600, seconds=0.25),
    Placement("add", F, 1, phase="backward", flops=10, bytes=200, seconds=0.25),
    Placement("nonzero", F, 2, phase="backward"),
    Placement("graph break", U, 1, phase="forward"),
]


def of(op: str, way: Way = F, nodes: int = 1, model: str = "m", phase: str = "forward") -> Placement:
    return Placement(op, way, nodes, "graph_0", phase, model)


def file(*records: Record) -> LedgerFile:
    return LedgerFile({}, records)


def printed(report: Report, width: int = 160) -> str:
    text = io.StringIO()
    print_report(report, Console(file=text, width=width))
    return text.getvalue()


def test_five_quantities_by_phase() -> None:
    found = amounts(PLACEMENTS)
    assert list(found) == list(Quantity)
    assert list(found[Quantity.NODES]) == ["forward", "backward", "all"]
    assert found[Quantity.NODES]["all"].ways == {G: 3, L: 1, F: 3, U: 1}
    assert found[Quantity.NODES]["all"].share(F) == 37.5
    assert found[Quantity.OPS]["all"].ways == {G: 0, L: 1, F: 2, U: 1}, "add counts for the worse of its two ways"
    assert found[Quantity.OPS]["forward"].ways == {G: 1, L: 1, F: 0, U: 1}
    assert found[Quantity.BYTES]["all"].ways == {G: 600, L: 400, F: 200, U: None}
    assert (found[Quantity.FLOPS]["backward"].ways[F], found[Quantity.FLOPS]["backward"].unknown) == (10, 2)
    assert found[Quantity.SECONDS]["forward"].share(L) == pytest.approx(100 * 2 / 3)


def test_what_was_not_recorded_is_no_nought() -> None:
    cell = amounts([of("add"), of("mm", L)])[Quantity.FLOPS]["all"]
    assert cell.ways == dict.fromkeys(Way)
    assert not cell.known
    assert amounts([])[Quantity.NODES] == {}


def test_the_columns_are_in_the_order_of_a_step() -> None:
    phases = ["inference", "step", "optimizer", "other", "backward", "forward"]
    found = amounts([of("add", G, phase=phase) for phase in phases])
    assert list(found[Quantity.OPS]) == ["forward", "backward", "optimizer", "step", "inference", "other", "all"]


def test_an_optimizer_that_steps_outside_of_the_program_is_a_column_of_its_own() -> None:
    outside = Event(DeadEnd.INPLACE_OPTIMIZER, "SGD.step", "it has hooks", "step outside", phase="optimizer")
    found = coverage([outside], [of("add")]).amounts[Quantity.NODES]
    assert found["optimizer"].ways == {G: 0, L: 0, F: 0, U: 1}
    assert "optimizer" not in coverage([], [of("add")]).amounts[Quantity.NODES]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(None, "", "?"), (0, "B", "0 B"), (9999, "", "9999"), (12345, "", "12.3 k"), (2.5e9, "B", "2.50 GB")],
)
def test_numbers_as_people_read_them(value: float | None, unit: str, text: str) -> None:
    assert amount(value, unit) == text


def test_ops_that_bring_the_most_models_come_first() -> None:
    lacking = {"a": {"x"}, "b": {"x"}, "c": {"y", "z"}, "d": {"x", "y", "z"}, "e": {"v", "w", "x"}, "whole": set()}
    assert cover(lacking) == (
        Step(("x",), ("a", "b"), 1, 2),
        Step(("y", "z"), ("c", "d"), 3, 4),
        Step(("v", "w"), ("e",), 5, 5),
    )
    assert cover({}) == ()


def test_models_that_ops_do_not_help_are_held_up() -> None:
    report = make_report(
        file(
            of("add", G, model="whole"),
            of("sort", model="lacks"),
            of("sort", model="broken"),
            Event(DeadEnd.COVERAGE, "graph break", "print", "uncaptured", model="broken"),
            Event(DeadEnd.MAINTENANCE, "step", "no memory", RAISED, model="failed"),
            PeerAnswer("peer", "sort", True),
        )
    )
    assert [model.name for model in report.placed] == ["whole", "lacks", "broken", "failed"]
    assert report.whole == ("whole",)
    assert report.blocked == {"broken": "1 place that torch left out of every graph", "failed": "raised: no memory"}
    assert report.steps == (Step(("sort",), ("lacks",), 1, 1),)


SORT = Event(
    DeadEnd.COVERAGE,
    "aten.sort.default",
    'a "reason"\nin two lines',
    "denied",
    shapes=((3, 4),),
    dtypes=("float32",),
    source="m.py:3 in f: x.sort()",
    call="torch.ops.aten.sort.default(x0, 1)",
)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex64", "int64", "uint8", "bool", "float8_e4m3fn"])
def test_tensors_of_every_type(dtype: str) -> None:
    event = Event(
        DeadEnd.COVERAGE, "aten.clone.default", "", shapes=((2,), ()), dtypes=(dtype, "int32"), call="(x0, x1)"
    )
    program = repro(event)
    assert program is not None
    names: dict[str, object] = {}
    exec(program[: program.index("def call")], names)
    x0, x1 = names["x0"], names["x1"]
    assert isinstance(x0, torch.Tensor)
    assert isinstance(x1, torch.Tensor)
    assert (x0.dtype, x0.shape, x1.dtype, x1.shape) == (getattr(torch, dtype), (2,), torch.int32, ())


def test_a_program_meets_the_fallback_again() -> None:
    found = [*bridge.coverage(torch.special.airy_ai, torch.ones(3, 8)).ledger, SORT]
    assert len(found) == 2
    for event in found:
        program = repro(event)
        assert program is not None
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(program, "repro.py", "exec"), {})
        assert f"coverage: {event.kind}: {event.op}: " in said.getvalue()


def test_no_program_where_the_call_is_not_known() -> None:
    for event in (
        Event(DeadEnd.COVERAGE, "cond", "an op over graphs", shapes=((2,),), dtypes=("float32",)),
        Event(DeadEnd.COVERAGE, "aten.a.b", "", shapes=(("u0",),), dtypes=("float32",), call="torch.ops.aten.a.b(x0)"),
        Event(DeadEnd.COVERAGE, "aten.a.b", "", shapes=((2,),), dtypes=("qint8",), call="torch.ops.aten.a.b(x0)"),
    ):
        assert repro(event) is None
    symbolic = Event(
        DeadEnd.DYNAMIC_SHAPE, "aten.a.b", "", shapes=(("s0",),), dtypes=("float32",), call="f(x0)", sizes=((5,),)
    )
    assert "torch.randn((5,))" in (repro(symbolic) or "")
    assert "dynamic=True" in (repro(symbolic) or "")


def test_a_file_for_each_reason(tmp_path: Path) -> None:
    written = write_repros([SORT, SORT, Event(DeadEnd.COVERAGE, "cond", "")], tmp_path / "repros")
    assert [path.name for path in written] == ["001_aten_sort_default.py"]
    assert written[0].read_text().startswith('# aten.sort.default does not run in TVM: a "reason" in two lines\n')


def test_worse_and_better_are_both_told() -> None:
    before = file(of("sort", nodes=2), of("topk"), of("add", G, 5), of("sort", model="old"), of("sort", model="gone"))
    after = file(
        of("sort", nodes=3),
        of("topk", G),
        of("add", G, 7),
        Event(DeadEnd.COVERAGE, "graph break", "print", "uncaptured", model="m"),
        Event(DeadEnd.MAINTENANCE, "step", "no memory", RAISED, model="old"),
        of("sort", model="new"),
    )
    found = difference(before, after)
    assert found.worse == (
        Change("m", "forward", "sort", 2, 3),
        Change("m", "forward", "graph break", 0, 1),
        Change("old", "", RAISED, 0, 1),
    )
    assert found.better == (Change("m", "forward", "topk", 1, 0),)
    assert (found.new, found.absent) == (("new",), ("gone",))
    back = difference(after, before)
    assert Change("old", "", RAISED, 1, 0) in back.better
    assert len(back.worse) == 1
    text = io.StringIO()
    print_difference(found, Console(file=text, width=200))
    assert "worse: m: forward: sort: 2 → 3" in text.getvalue()
    assert "better: m: forward: topk: 1 → 0" in text.getvalue()
    assert "worse: old: raised" in text.getvalue()


def test_peers_are_asked_about_the_same_nodes() -> None:
    answers = [PeerAnswer("one", "mm", True, "v1"), PeerAnswer("one", "sort", False, "v1")]
    report = make_report(file(of("mm", L, 4), of("sort", F, 1), *answers, PeerAnswer("two", "", False, "no module")))
    ours, one, two = report.peers
    assert (ours.ops, ours.all_ops, ours.nodes, ours.all_nodes) == (1, 2, 4, 5)
    assert (one.name, one.nodes, one.missing) == ("one", 4, (("sort", 1),))
    assert (two.asked, two.detail) == (False, "no module")
    assert make_report(file(of("mm", L, 4))).peers == ()


MANY = file(
    *(of("aten.sort.default", model=f"net{n}") for n in range(6)),
    *(Placement("aten.mm.default", L, 2, "g", "backward", f"net{n}", 5000, 700, 0.001) for n in range(6)),
    Event(SORT.dead_end, SORT.op, "no row", model="net0", call=SORT.call, shapes=SORT.shapes, dtypes=SORT.dtypes),
    Event(DeadEnd.MAINTENANCE, "step", "<b>no memory</b>", RAISED, model="net6"),
    PeerAnswer("one", "aten.mm.default", True, "v1"),
    PeerAnswer("two", "", False, "no module"),
)


@pytest.mark.parametrize("width", [60, 160])
def test_many_models_on_the_terminal(width: int) -> None:
    text = printed(make_report(MANY), width)
    assert "7 models" in text
    assert max(map(len, text.splitlines())) <= width
    joined = re.sub(r"\s", "", text)
    for expected in ("net5", "+6→6", "aten.sort.default", "30.0k", "absent:nomodule", "raised"):
        assert expected in joined


def test_many_models_on_the_page() -> None:
    page = report_html(make_report(MANY))
    assert "7 models together" in page
    assert "&lt;b&gt;no memory" in page
    assert not re.search(r"""(src|href)\s*=|https?://|@import|url\(|<script""", page)
    for expected in ("torch.ops.aten.sort.default(x0, 1)", 'class="stairs"', "absent: no module", "30.0 k", "+6 → 6"):
        assert expected in page
    assert page.count('<details class="model">') == 7


def test_json_holds_all_of_it() -> None:
    content = json.loads(report_json(make_report(MANY)))
    assert content["amounts"]["FLOPs"]["backward"]["library"] == 30000
    assert content["amounts"]["FLOPs"]["forward"]["fallback"] is None
    assert content["amounts"]["FLOPs"]["all"]["unknown_nodes"] == 6
    assert content["next_ops"][0]["ops"] == ["aten.sort.default"]
    assert content["blocked"] == {"net6": "raised: <b>no memory</b>"}
    assert [peer["asked"] for peer in content["peers"]] == [True, True, False]
    (reason,) = [one for one in content["reasons"] if one["op"] == "aten.sort.default"]
    assert "bridge.compile(call" in reason["program"]
    assert len(content["models"]) == 7
