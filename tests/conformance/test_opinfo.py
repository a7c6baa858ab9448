"""Entries of many families of OpInfo and ModuleInfo through the bridge; `experiments.conformance.run` takes all."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import typer
from torch.testing._internal.common_methods_invocations import op_db

import bridge
from bridge.demo.timing import machine
from bridge.ledger import DeadEnd, Event, Measure, Placement, Record, Way
from bridge.ledger.jsonl import read, write
from experiments.apart import begin, forget
from experiments.conformance import entry
from experiments.conformance.entry import CRASHED, Result, differences, outcome
from experiments.conformance.modules import module_samples
from experiments.conformance.run import sweep
from experiments.conformance.samples import ENTRIES, samples
from experiments.conformance.summary import (
    GENERATED,
    NOTHING,
    UNCAPTURED,
    WITH_FALLBACK,
    WITH_LIBRARY,
    WRONG,
    Verdict,
    verdicts,
)

ENDS = {
    "add": GENERATED,
    "addmm": GENERATED,
    "amax": GENERATED,
    "argwhere": WITH_LIBRARY,
    "allclose": UNCAPTURED,
    "cat": GENERATED,
    "clamp": GENERATED,
    "cumsum": GENERATED,
    "gather": GENERATED,
    "index_put": GENERATED,
    "fft.rfft": WITH_LIBRARY,
    "frexp": GENERATED,
    "linalg.eigh": WITH_LIBRARY,
    "matrix_exp": WITH_FALLBACK,
    "linalg.pinv": WITH_LIBRARY,
    "linalg.vector_norm": GENERATED,
    "linspace": GENERATED,
    "log_softmax": GENERATED,
    "masked_fill": GENERATED,
    "nanmean": GENERATED,
    "nn.functional.batch_norm": GENERATED,
    "nn.functional.conv2d": WITH_LIBRARY,
    "nn.functional.cross_entropy": GENERATED,
    "nn.functional.embedding": GENERATED,
    "nn.functional.gelu": GENERATED,
    "nn.functional.interpolate.bilinear": GENERATED,
    "nn.functional.max_pool2d": GENERATED,
    "normal": WITH_LIBRARY,
    "polar": WITH_LIBRARY,
    "sort": WITH_LIBRARY,
    "split": GENERATED,
    "var": GENERATED,
    "nn.BatchNorm1d": GENERATED,
    "nn.Embedding": GENERATED,
    "nn.GRUCell": GENERATED,
    "nn.LSTM": GENERATED,
    "nn.MultiheadAttention": GENERATED,
    "nn.NLLLoss": GENERATED,
    "nn.TransformerEncoderLayer": WITH_LIBRARY,
}
"""How entries of different families end."""


@pytest.mark.parametrize("name", ENDS)
def test_entry(name: str) -> None:
    verdict = verdicts(outcome(name, torch.float32, 1, symbolic=False))[name]
    assert verdict.verdict == ENDS[name], verdict.line


def test_entry_with_symbolic_sizes() -> None:
    assert verdicts(outcome("nn.functional.softplus", torch.float32, 1, symbolic=True)) == {
        "nn.functional.softplus": Verdict(GENERATED, "")
    }


def test_a_sample_of_an_entry_is_strided_and_offset() -> None:
    first, strided = samples("exp", torch.float32, 1)
    assert first.fresh()[0].is_contiguous()
    x = strided.fresh()[0]
    assert not x.is_contiguous()
    assert x.storage_offset()
    assert torch.equal(x, first.fresh()[0])
    assert x.requires_grad


def test_a_wrong_compilation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of which the bridge compiles another function than eager runs."""
    compile = entry.bridge.compile
    monkeypatch.setattr(entry.bridge, "compile", lambda f, **options: compile(lambda *a: f(*a) * 1.001, **options))
    verdict = verdicts(outcome("exp", torch.float32, 1, symbolic=False))["exp"]
    assert verdict.verdict == WRONG
    assert "of 20 differ" in verdict.detail


one = torch.ones(2)


@pytest.mark.parametrize(
    ("found", "eager"),
    [
        (Result([one], [None]), Result([one], [torch.zeros(2)])),
        (Result([one], [torch.zeros(2)]), Result([one], [None])),
        (Result([one.double()], []), Result([one], [])),
        (Result([torch.ones(2, 1)], []), Result([one], [])),
        (Result([torch.tensor([1.0, math.nan])], []), Result([one], [])),
        (Result([one.int() + 1], []), Result([one.int()], [])),
        (Result([torch.tensor([1 + 1e-3j])], []), Result([torch.tensor([1 + 0j])], [])),
        (Result([3], []), Result([4], [])),
        (Result([True], []), Result([1], [])),
        (Result([one, one], []), Result([one], [])),
    ],
)
def test_difference_is_told(found: Result, eager: Result) -> None:
    assert differences("entry", found, eager, eager)
    assert not differences("entry", eager, eager, eager)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_a_module_is_compared_with_its_parameters_and_buffers(symbolic: bool) -> None:
    sample = next(module_samples("nn.BatchNorm1d", torch.float32, 1))
    arguments = sample.fresh()
    compiled, call = sample.compiled(arguments, symbolic)
    found = entry.called(call, arguments)
    assert len(found.outputs) == 1 + len(list(arguments[0].buffers()))
    assert len(found.gradients) == 1 + len(list(arguments[0].parameters()))
    assert any(graph.runs[0] for graph in bridge.inspect(compiled).graphs)
    assert not differences("nn.BatchNorm1d", found, *[entry.called(sample.run, sample.fresh())] * 2)


def test_what_was_never_written_is_not_compared() -> None:
    assert not differences("empty_like", Result([one], []), Result([one + 1], []), Result([one + 1], []))


def test_an_entry_that_ends_or_holds_up_its_process_costs_itself(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    write(file, [])
    worker = "tests.conformance.served"
    swept = dict(sweep(["fine", "crash", "hang", "well"], file, "float32", 1, False, 1, 5.0, worker))
    assert swept["crash"].startswith("crashed: process: died: SIGSEGV")
    assert swept["hang"].startswith("crashed: process: hung")
    ends = {name: verdict.verdict for name, verdict in verdicts(read(file).records).items()}
    assert ends == {"fine": GENERATED, "crash": CRASHED, "hang": CRASHED, "well": GENERATED}


def test_what_is_measured_again_is_forgotten_first(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    write(file, [Measure("samples", (1, 1), model=name) for name in "fg"], {"command": "c"})
    forget(file, ["f"])
    assert list(verdicts(read(file).records)) == ["g"]
    assert read(file).about == {"command": "c"}


def test_the_first_line_is_true_of_all_results(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    begin(file, "c", ["f"], again=False)
    assert read(file).about == {"command": "c", **machine(), "time": read(file).about["time"]}
    results = [Measure("samples", (1, 1), model=name) for name in "fg"]
    write(file, results, {"command": "c", "versions": "torch 1.0"})
    for names, again in (("fg", False), ("f", True)):
        with pytest.raises(typer.BadParameter, match=r"torch 1\.0"):
            begin(file, "c", names, again)
    begin(file, "d", "fg", again=True)
    assert (read(file).about["command"], read(file).records) == ("d", ())


def test_verdict_is_that_of_the_worst_sample() -> None:
    ended = Measure("samples", (2, 2), model="f")
    generated, fallen = Placement("many", Way.GENERATED, 3, model="f"), Placement("aten.f", Way.FALLBACK, 1, model="f")
    wrong = Event(DeadEnd.MAINTENANCE, "sample 0", "output 0", WRONG, model="f")
    unended: list[Record] = [generated]
    assert not verdicts(unended)
    assert verdicts([ended])["f"] == Verdict(NOTHING, "")
    assert verdicts([generated, ended])["f"] == Verdict(GENERATED, "")
    assert verdicts([generated, fallen, ended])["f"] == Verdict(WITH_FALLBACK, "aten.f")
    assert verdicts([generated, fallen, wrong, ended])["f"] == Verdict(WRONG, "sample 0: output 0")


def test_every_entry_has_a_name_of_its_own() -> None:
    assert len(ENTRIES) == len(op_db)
