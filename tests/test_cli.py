"""The commands, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.backends.tvm.table import awaited, missing, table
from bridge.conformance.kept import ROWS
from bridge.ledger import DeadEnd, End, Event, Placement, Trial, Way
from bridge.ledger.jsonl import read, write

ROOT = Path(__file__).resolve().parent.parent


def bridge(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "TERM": "dumb", **environment}
    command = [sys.executable, "-m", "bridge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    event = Event(DeadEnd.COVERAGE, "aten.sort.default", "no row", backend="eager", source="m.py:3 in f: x.sort()")
    write(tmp_path / "l.jsonl", [event, Placement("aten.sort.default", Way.FALLBACK, 1, phase="forward")])
    return tmp_path / "l.jsonl"


def test_report_on_the_terminal(ledger: Path) -> None:
    done = bridge("report", ledger)
    assert done.returncode == 0, done.stderr
    assert "aten.sort.default" in done.stdout
    assert "m.py:3 in f: x.sort()" in done.stdout


def test_report_as_a_page(ledger: Path, tmp_path: Path) -> None:
    done = bridge("report", ledger, "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "aten.sort.default" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_report_writes_programs(tmp_path: Path) -> None:
    event = Event(DeadEnd.COVERAGE, "aten.a.b", "no row", call="f(x0)", shapes=((2,),), dtypes=("float32",))
    write(tmp_path / "l.jsonl", [event])
    done = bridge("report", tmp_path / "l.jsonl", "--repros", tmp_path / "repros")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "repros").iterdir()] == ["001_aten_a_b.py"]


def test_report_as_json(ledger: Path) -> None:
    done = bridge("report", ledger, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["dead_ends"]["coverage"] == 1


def test_a_report_needs_neither_torch_nor_tvm(ledger: Path, tmp_path: Path) -> None:
    for name in ("torch", "tvm"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('this test has none')\n")
    done = bridge("report", ledger, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert done.returncode == 0, done.stderr


def test_a_broken_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text("not a ledger\n")
    done = bridge("report", tmp_path / "l.jsonl")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "l.jsonl:1: not a ledger" in done.stderr


def test_ops_lists_every_row() -> None:
    done = bridge("ops")
    assert done.returncode == 0, done.stderr
    listed = set(done.stdout.split())
    assert not [str(op) for op in table() if str(op) not in listed]
    own = [op for op in table() if op.namespace in ("aten", "prims")]
    assert f"{len(own)} overloads" in done.stdout


def test_ops_lists_the_kernels_of_triton() -> None:
    done = bridge("ops", "--backend", "triton")
    assert done.returncode == 0, done.stderr
    assert "aten.scatter_add.default" in done.stdout
    assert bridge("ops", "--backend", "halide").returncode == 2


def test_ops_tells_what_was_tried_of_a_row(tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    trials = [
        Trial("aten.exp2.default", "bridge", End.RIGHT, 3, "float32", "sample"),
        Trial("aten.exp2.default", "bridge", End.RIGHT, 2, "int8", "sample"),
        Trial("aten.exp2.default", "bridge", End.WRONG, 1, "int8", "no elements or dimensions", "1 of 4 differ"),
        Trial("aten.exp2.default", "bridge", End.REFUSED, 1, "complex64", "sample", "complex64 is not supported"),
        Trial("aten.exp2.default", "tvm", End.RIGHT, 9, "float64", "sample"),
    ]
    write(kept, trials)
    done = bridge("ops", "--json", "--trials", kept)
    rows = {row["op"]: row for row in json.loads(done.stdout)}
    assert rows["aten.exp2.default"] == {
        "op": "aten.exp2.default", "family": "unary", "row": "exp2", "symbolic": True, "refuses": [],
        "dtypes": ["float32"], "refused": ["complex64"], "samples": 5, "wrong": 1,
    }  # fmt: skip
    assert rows["aten.sin.default"]["dtypes"] == []
    assert "check_errors=" in rows["aten._linalg_solve_ex.default"]["refuses"]


def test_what_was_tried_of_the_rows_is_kept() -> None:
    """The listing's types and samples: of rows that are there, and right."""
    known = {str(op) for op in table()} | set(awaited) | set(missing)
    tried = read(ROWS).trials
    assert {trial.op for trial in tried} <= known
    assert not [trial for trial in tried if trial.end not in (End.RIGHT, End.REFUSED)]


def test_an_unknown_task_lists_the_known_ones() -> None:
    done = bridge("demo", "--task", "chess")
    assert done.returncode == 2
    assert "digits, text" in done.stderr


def test_experiments_are_listed_and_run(tmp_path: Path) -> None:
    listed = bridge("experiment")
    assert listed.returncode == 0
    assert "maintenance: What it takes to keep up" in listed.stdout
    helped = bridge("experiment", "maintenance", "--", "--help")
    assert helped.returncode == 0
    assert "--try" in helped.stdout
    unknown = bridge("experiment", "nothing")
    assert unknown.returncode == 2
    assert "there are api_instability" in unknown.stderr
