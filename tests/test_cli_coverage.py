"""`bridge coverage`, as a user runs it, and its parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import bridge.cli.coverage as command
from bridge.cli import app
from bridge.cli.last_words import reason
from bridge.cli.peers import PEERS, ask
from bridge.cli.processes import dry_runs
from bridge.cli.targets import load
from bridge.errors import UnknownModel
from bridge.ledger import DeadEnd, Event, Placement, Record, Way
from bridge.ledger.jsonl import read, write
from bridge.report.coverage import RAISED, TIMED_OUT
from tests.test_cli import ROOT, bridge

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, scale=1.0):
        rows = self.layer(x).tanh() * scale
        return torch.linalg.matrix_exp(rows @ rows.mT)

def make():
    return Net(), (torch.ones(2, 4),), {"scale": 2.0}, lambda output: output.mean()

def bare():
    return Net(), [torch.ones(2, 4)]

def wrong():
    return Net()

def crash():
    import os
    os._exit(7)

def leave():
    import sys
    sys.exit(0)

def hang():
    import time
    time.sleep(600)

def fail():
    raise MemoryError("no memory")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(MODEL)
    (tmp_path / "plain.py").write_text("import torch\nmodel = torch.nn.Tanh()\nargs = (torch.ones(2),)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("nets", "plain"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.slow
def test_models_from_a_file_and_from_a_function(folder: Path) -> None:
    done = bridge(
        "coverage", "plain.py", "nets:bare", "--jobs", "2", "--out", "l.jsonl", "--html", "out/p.html",
        "--json", "r.json", "--fail-under", "99",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "nets:bare: " in done.stderr
    assert "% of the nodes run in TVM or a library, under 99 %" in done.stderr
    assert "plain.py: " not in done.stderr
    assert "aten.linalg_matrix_exp.default" in done.stdout
    held = read(folder / "l.jsonl")
    assert list(dict.fromkeys(record.model for record in held.placements)) == ["plain.py", "nets:bare"]
    assert {record.phase for record in held.placements if record.model == "nets:bare"} == {"forward", "backward"}
    assert held.about["command"].startswith("bridge coverage plain.py nets:bare")
    assert "</html>" in (folder / "out" / "p.html").read_text(encoding="utf-8")
    assert json.loads((folder / "r.json").read_text(encoding="utf-8"))["whole"] == ["plain.py"]


@pytest.mark.slow
def test_what_fails_costs_one_target(folder: Path) -> None:
    told: dict[str, Sequence[Record]] = {}
    records, unknown = dry_runs(["nets:crash", "nets:leave", "nets:nothing", "nets:fail"], {}, 2, 120, told.__setitem__)
    assert unknown == ["nets:nothing: the module nets has no function 'nothing'"]
    records += dry_runs(["nets:hang"], {}, 1, 3, told.__setitem__)[0]
    kinds = [(event.model, event.kind, event.detail) for event in records if isinstance(event, Event)]
    assert kinds == [
        ("nets:crash", RAISED, "the process ended with 7"),
        ("nets:leave", RAISED, "the process ended with 0"),
        ("nets:fail", RAISED, "MemoryError: no memory"),
        ("nets:hang", TIMED_OUT, "not done after 3 s"),
    ]
    assert set(told) == {"nets:nothing", "nets:crash", "nets:leave", "nets:fail", "nets:hang"}


@pytest.mark.usefixtures("folder")
def test_forms_of_a_target() -> None:
    made = load("nets.py")
    assert made.kwargs == {"scale": 2.0}
    assert callable(made.loss_fn)
    assert isinstance(load("nets:bare").args, tuple)
    assert load("plain.py").loss_fn is None
    assert isinstance(load("nets.py:bare").args, tuple)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("absent.py", "there is no such file"),
        ("absent:make", "there is no module 'absent' here; give module:function"),
        ("nets:wrong", "it gives Net, not (model, args)"),
        ("nets.py:nothing", "the module nets.py has no function 'nothing'"),
        ("absent.py:make", "there is no such file"),
        ("os:sep", "the module os has no function 'sep'"),
    ],
)
def test_a_target_that_is_none(target: str, words: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        load(target)
    assert words in str(caught.value)


def test_a_name_of_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class Corpus:
        MODELS = {"net": lambda: (abs, (1,), {}, None)}  # noqa: RUF012

    monkeypatch.setitem(sys.modules, "experiments.corpus", Corpus)  # type: ignore[arg-type]
    assert load("net").model is abs
    with pytest.raises(UnknownModel, match="other: the corpus has no such model; give module:function"):
        load("other")
    with pytest.raises(UnknownModel, match="nett: the corpus has no such model, but net; give module:function"):
        load("nett")


def test_the_reason_is_the_error_and_not_what_dynamo_says_after_it() -> None:
    frame = '  File "/home/me/net.py", line 9, in forward\n    return self.b(x)\n           ^^^\n'
    others = '  File "/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 1, in forward\n'
    begin = "Traceback (most recent call last):\n"
    line = "net.py:9 in forward: return self.b(x)"
    plain = f"E1 {begin}E1 KeyError: 1\n{begin}{others}KeyError: 2\n\nDuring\n\n{begin}{frame}{others}ValueError: bad\n"
    assert reason(plain, 1) == ("ValueError: bad", line)
    title, why = "torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call", "[4, 32] X [31, 10]"
    told = f"{title}\n  Explanation: {why}\n  Hint: …\n\nfrom user code:\n {frame}{others}\nSet TORCHDYNAMO_VERBOSE=1\n"
    assert reason(begin + others + told, 1) == (f"{title}: {why}", line)
    syntax = f'{begin}{others}  File "/home/me/net.py", line 1\n    def make(:\n   ^\nSyntaxError: invalid syntax\n'
    assert reason(syntax, 1) == ("SyntaxError: invalid syntax", "net.py:1: def make(:")
    assert reason("starting\nbus error\n\n", 1) == ("bus error", "")
    assert reason(begin, 1) == (begin.strip(), "")
    assert reason(f"{plain}killed", -9) == ("killed", "")
    assert reason("", 1) == ("", "")


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command with records in place of dry runs, and a baseline file with others."""

    def runs(now: Sequence[Record], *options: str, before: Sequence[Record] | None = None) -> Result:
        def found(names: Sequence[str], *more: Any) -> tuple[list[Record], list[str]]:
            return list(now), [f"{name}: not there" for name in names if name == "absent"]

        monkeypatch.setattr(command, "dry_runs", found)
        if before is not None:
            write(tmp_path / "before.jsonl", before)
            options = (*options, "--baseline", str(tmp_path / "before.jsonl"))
        return CliRunner().invoke(app, ["coverage", "m", *options], env={"COLUMNS": "200"})

    return runs


def nodes(way: Way, count: int = 1, op: str = "aten.sort.default") -> Placement:
    return Placement(op, way, count, phase="forward", model="m")


@pytest.mark.parametrize(("percent", "code"), [("75", 0), ("75.1", 1), ("0", 0)])
def test_fail_under_counts_what_is_not_in_tvm(run: Run, percent: str, code: int) -> None:
    records = [nodes(Way.GENERATED, 2), nodes(Way.LIBRARY, 1, "aten.mm.default"), nodes(Way.FALLBACK, 1)]
    assert run(records, "--fail-under", percent).exit_code == code


def test_what_torch_left_out_counts_too(run: Run) -> None:
    left_out = Event(DeadEnd.COVERAGE, "graph break", "print", "uncaptured", model="m")
    assert run([nodes(Way.GENERATED), left_out], "--fail-under", "51").exit_code == 1
    assert run([nodes(Way.GENERATED), left_out], "--fail-under", "50").exit_code == 0


def test_a_model_that_failed_is_no_success(run: Run) -> None:
    done = run([Event(DeadEnd.MAINTENANCE, "step", "no memory", RAISED, model="m")])
    assert done.exit_code == 1
    assert "m: raised: no memory" in done.output


def test_a_target_that_is_not_there_does_not_cost_the_others(run: Run, tmp_path: Path) -> None:
    done = run([nodes(Way.GENERATED)], "absent", "--out", str(tmp_path / "l.jsonl"))
    assert done.exit_code == 2
    assert "absent: not there" in done.output
    assert len(read(tmp_path / "l.jsonl").placements) == 1
    assert run([], "absent").exit_code == 2


def test_worse_than_the_baseline(run: Run) -> None:
    done = run([nodes(Way.FALLBACK, 2)], before=[nodes(Way.FALLBACK, 1)])
    assert done.exit_code == 1
    assert "worse: m: forward: aten.sort.default: 1 → 2" in done.output


def test_better_than_the_baseline_is_told(run: Run) -> None:
    done = run([nodes(Way.GENERATED, 2)], before=[nodes(Way.FALLBACK, 1)])
    assert done.exit_code == 0
    assert "better: m: forward: aten.sort.default: 1 → 0" in done.output
    same = run([nodes(Way.FALLBACK)], before=[nodes(Way.FALLBACK)])
    assert (same.exit_code, "no difference from the baseline" in same.output) == (0, True)


def test_peers_are_asked_about_what_was_found(run: Run, tmp_path: Path) -> None:
    placements = [nodes(Way.GENERATED, 2, "aten.add.Tensor"), nodes(Way.FALLBACK, 1, "aten._fft_r2c.default")]
    done = run(placements, "--peers", "--json", str(tmp_path / "r.json"))
    assert done.exit_code == 0, done.output
    peers = {peer["name"]: peer for peer in json.loads((tmp_path / "r.json").read_text())["peers"]}
    assert set(peers) == {"bridge, by call", *PEERS}
    for name in ("bridge, by call", "tvm.relax.frontend.torch", "torch._inductor"):
        assert (peers[name]["nodes"], peers[name]["all_nodes"]) == (2, 3)
        assert peers[name]["missing"] == [["aten._fft_r2c.default", 1]]


def test_peers_know_what_they_have() -> None:
    asked = ask(["aten.add.Tensor", "aten.sort.default", "aten.nothing.default", "cond", "aten.bernoulli.p"])
    answers = {(answer.peer, answer.op): answer.has for answer in asked}
    for peer in ("bridge", "tvm.relax.frontend.torch", "torch._inductor"):
        assert answers[peer, "aten.add.Tensor"]
        assert not answers[peer, "aten.nothing.default"]
    assert answers["bridge", "aten.bernoulli.p"]
    assert answers["torch._inductor", "cond"]
    assert {answer.detail.split()[0] for answer in asked if answer.op} >= {"bridge", "TVM", "torch"}


def test_a_peer_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    (answer,) = [answer for answer in ask(["aten.add.Tensor"]) if answer.peer == "torch.onnx"]
    assert (answer.op, answer.has) == ("", False)
    assert "ImportError" in answer.detail or "ModuleNotFoundError" in answer.detail
