"""The picture of the corpus says of each model what the kept results say."""

from __future__ import annotations

from pathlib import Path

from bridge.ledger import DeadEnd, Event, Measure, Placement, Record, Way
from bridge.ledger.jsonl import LedgerFile
from experiments.coverage.figure import Row, State, draw, ours, peer, rows


def ended(model: str, way: Way, wrong: float = 0.0, outside: float = 0.0) -> list[Record]:
    return [
        Placement("aten.add.Tensor", way, 1, model=model),
        Measure("wrong results", (wrong,), "", "bridge", model),
        Measure("uncaptured calls", (outside,), "", "bridge", model),
    ]


def test_a_model_is_shown_as_it_ended() -> None:
    records = [
        *ended("wrong", Way.GENERATED, wrong=2.0),
        *ended("fallen", Way.FALLBACK),
        *ended("outside", Way.GENERATED, outside=3.0),
        *ended("whole", Way.GENERATED),
        Event(DeadEnd.COVERAGE, "graph break", "behind which nothing ran", "uncaptured", model="whole"),
    ]
    row = ours("bridge", LedgerFile({}, tuple(records)))
    assert row.states == (State.WHOLE, State.OUTSIDE, State.LACKING, State.WRONG)
    assert row.label == "2 of 4"


def test_without_the_library_only_what_draws_may_be_called() -> None:
    drawing = [*ended("m", Way.GENERATED), Placement("aten.bernoulli.p", Way.LIBRARY, 1, model="m")]
    called = [*ended("m", Way.GENERATED), Placement("aten.mm.default", Way.LIBRARY, 1, model="m")]
    assert ours("bridge", LedgerFile({}, tuple(called))).states == (State.WHOLE,)
    assert ours("bridge", LedgerFile({}, tuple(called)), library=False).states == (State.LACKING,)
    assert ours("bridge", LedgerFile({}, tuple(drawing)), library=False).states == (State.WHOLE,)


def test_a_peer_has_a_model_if_it_has_every_op_but_those_that_draw() -> None:
    captured = [
        Placement("aten.add.Tensor", Way.GENERATED, 1, model="a"),
        Placement("aten.bernoulli.p", Way.LIBRARY, 1, model="a"),
        Placement("aten.mm.default", Way.LIBRARY, 1, model="b"),
    ]
    row = peer("peer", {"aten.add.Tensor": True, "aten.mm.default": False}, captured)
    assert row.states == (State.BY_NAME, State.LACKING)


def test_the_picture_is_small_and_names_every_row(tmp_path: Path) -> None:
    path = tmp_path / "coverage.svg"
    draw([Row("ours", tuple(State)), Row("theirs", (State.LACKING,) * 85)], path)
    text = path.read_text()
    assert len(text) < 60_000
    assert all(word in text for word in ("ours", "theirs", "3 of 6", "0 of 85", State.WRONG.value[1]))


def test_the_kept_results_have_rows_of_the_whole_corpus() -> None:
    found = rows()
    assert "bridge" in [row.name for row in found]
    assert {len(row.states) for row in found} == {85}
