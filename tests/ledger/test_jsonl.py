"""A ledger file gives back what was written, and says where it is broken."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import LedgerFormatError
from bridge.ledger import DeadEnd, End, Event, Measure, PeerAnswer, Placement, Trial, Way
from bridge.ledger.jsonl import SCHEMA, append, read, write

TEXT = st.text(max_size=20)
COUNT = st.integers(0, 10**12)
SIZE = st.integers(-(2**63), 2**63) | TEXT
EVENTS = st.builds(
    Event,
    dead_end=st.sampled_from(DeadEnd),
    op=TEXT,
    detail=TEXT,
    kind=TEXT,
    graph=TEXT,
    phase=TEXT,
    backend=TEXT,
    count=COUNT,
    shapes=st.lists(st.lists(SIZE, max_size=3).map(tuple), max_size=3).map(tuple),
    dtypes=st.lists(TEXT, max_size=3).map(tuple),
    bytes=COUNT,
    seconds=st.floats(allow_nan=False),
    source=TEXT,
    node=TEXT,
    model=TEXT,
    call=TEXT,
    sizes=st.lists(st.lists(SIZE, max_size=3).map(tuple), max_size=3).map(tuple),
)
PLACEMENTS = st.builds(
    Placement,
    op=TEXT,
    way=st.sampled_from(Way),
    nodes=COUNT,
    graph=TEXT,
    phase=TEXT,
    model=TEXT,
    flops=st.none() | COUNT,
    bytes=st.none() | COUNT,
    seconds=st.none() | st.floats(allow_nan=False),
)
PEERS = st.builds(PeerAnswer, peer=TEXT, op=TEXT, has=st.booleans(), detail=TEXT, model=TEXT)
TRIALS = st.builds(
    Trial,
    op=TEXT,
    importer=TEXT,
    end=st.sampled_from(End),
    calls=COUNT,
    dtype=TEXT,
    variant=TEXT,
    detail=TEXT,
    model=TEXT,
)
MEASURES = st.builds(
    Measure,
    name=TEXT,
    values=st.lists(st.floats(allow_nan=False), max_size=5).map(tuple),
    unit=TEXT,
    target=TEXT,
    model=TEXT,
)
RECORDS = st.lists(EVENTS | PLACEMENTS | MEASURES | PEERS | TRIALS, max_size=5)
ONE = Event(DeadEnd.COVERAGE, "aten.sort.default", "no row", source="model.py:3 in forward: torch.sort(x)")


@given(RECORDS, RECORDS, st.dictionaries(TEXT, TEXT))
@settings(max_examples=100, deadline=None)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, first: list, second: list, about: dict) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    write(path, first, about)
    append(path, second)
    file = read(path)
    assert list(file.records) == first + second
    assert file.about == about


def test_a_loss_that_is_no_number_survives(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    write(path, [Measure("loss", (1.5, math.nan, math.inf))])
    (measure,) = read(path).measures
    assert measure.values[0] == 1.5
    assert math.isnan(measure.values[1])
    assert measure.values[2] == math.inf


def test_a_file_of_the_first_schema_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(
        '{"format": "bridge-ledger", "schema": 1, "about": {}}\n'
        '{"record": "placement", "op": "aten.mm.default", "way": "library", "nodes": 4, "phase": "forward"}\n'
    )
    assert read(path).placements == (Placement("aten.mm.default", Way.LIBRARY, 4, phase="forward"),)
    assert read(path).placements[0].flops is None
    added = Placement("aten.add.Tensor", Way.GENERATED, 1, flops=7)
    append(path, [added])
    assert read(path).schema == SCHEMA
    assert read(path).placements[1:] == (added,)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_cut_within_a_line_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    write(path, [ONE, ONE])
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:cut])
    if cut and whole[cut - 1 : cut] == b"\n":
        assert len(read(path).events) == whole[:cut].count(b"\n") - 1
    else:
        with pytest.raises(LedgerFormatError, match=r"ledger\.jsonl:\d+: "):
            read(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", r":1: the file is empty"),
        ("a,b\n1,2\n", r":1: not a ledger"),
        ('{"some": "json"}\n', r":1: not a ledger"),
        ("[1]\n", r":1: .*list"),
        (f'{{"format": "bridge-ledger", "schema": {SCHEMA}, "about": [1]}}\n', r":1: not a ledger"),
        ('{"format": "bridge-ledger", "schema": 0}\n', r":1: not a ledger"),
        (f'{{"format": "bridge-ledger", "schema": {SCHEMA + 1}}}\n', r":1: .*update the bridge"),
        (f'{{"format": "bridge-ledger", "schema": {SCHEMA}}}\n{{"record": "dream"}}\n', r":2: no record .*'dream'"),
        (f'{{"format": "bridge-ledger", "schema": {SCHEMA}}}\n{{"record": "event"}}\n', r":2: a damaged event"),
        (f'{{"format": "bridge-ledger", "schema": {SCHEMA}}}\n\n', r":2: not a ledger, or damaged"),
    ],
)
def test_what_is_not_ours_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(content)
    with pytest.raises(LedgerFormatError, match=r"ledger\.jsonl" + complaint):
        read(path)
    with pytest.raises(LedgerFormatError):
        append(path, [ONE])
    assert path.read_text() == content


@pytest.mark.parametrize(("field", "value"), [("count", "3"), ("dead_end", "boredom"), ("shapes", 4), ("mood", "good")])
def test_a_field_of_the_wrong_type_is_refused(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "ledger.jsonl"
    write(path, [ONE])
    header, event = path.read_text().splitlines()
    path.write_text(f"{header}\n{json.dumps(json.loads(event) | {field: value})}\n")
    with pytest.raises(LedgerFormatError, match=r"ledger\.jsonl:2: a damaged event"):
        read(path)


def test_binary_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"\x80\xff\n")
    with pytest.raises(LedgerFormatError, match=r"ledger\.jsonl: not a ledger"):
        read(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    write(path, [ONE])

    def broken() -> Iterator[Event]:
        yield ONE
        raise RuntimeError("the model failed")

    with pytest.raises(RuntimeError, match="the model failed"):
        write(path, broken())
    assert read(path).events == (ONE,)
    assert list(tmp_path.iterdir()) == [path]


def test_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl.gz"
    event = Event(DeadEnd.COVERAGE, "aten.sort.default", "no conversion", kind="no row")
    write(path, [event], {"command": "test"})
    append(path, [event, Measure("step", (1.0, 2.0), "s")])
    held = read(path)
    assert held.about == {"command": "test"}
    assert held.records == (event, event, Measure("step", (1.0, 2.0), "s"))
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(LedgerFormatError):
        read(path)
