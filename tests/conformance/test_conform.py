"""`bridge conform` tells what an importer gets wrong, and blames it for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bridge.cli import app
from bridge.conformance.importers import UnknownImporter, importer
from bridge.conformance.kept import tried
from bridge.conformance.run import UnknownOp, chosen, sweep
from bridge.conformance.trials import EXTENT, SPECIAL, trials, worst
from bridge.ledger import End, Trial
from bridge.ledger.jsonl import write
from tests.conformance import vendors

aten = torch.ops.aten


def of_end(found: list[Trial], end: End) -> list[Trial]:
    return [trial for trial in found if trial.end is end]


def test_an_importer_that_is_right_has_all_types_and_variants_right() -> None:
    found = trials(aten.exp2.default, "eager", vendors.eager)
    assert {trial.end for trial in found} == {End.RIGHT}
    assert {trial.dtype for trial in found} >= {"float32", "float64", "float16", "bfloat16", "int64", "bool"}
    assert {trial.variant for trial in found} >= {"sample", SPECIAL, EXTENT, "other layout"}


def test_what_is_wrong_for_special_values_alone_is_told() -> None:
    found = trials(aten.exp2.default, "without_nan", vendors.without_nan)
    assert worst(found) is End.WRONG
    assert {(trial.dtype, trial.variant) for trial in of_end(found, End.WRONG)} == {("float32", SPECIAL)}
    assert "differ" in of_end(found, End.WRONG)[0].detail


def test_what_is_not_taken_is_no_fault() -> None:
    found = trials(aten.exp2.default, "only_floats", vendors.only_floats)
    assert worst(found) is End.RIGHT
    refused = of_end(found, End.REFUSED)
    assert {trial.dtype for trial in refused} >= {"int64", "bool"}
    assert {trial.detail for trial in refused} == {"TypeError: no integers"}
    assert "float32" not in {trial.dtype for trial in refused}


def test_only_the_call_that_fails_has_failed() -> None:
    found = trials(aten.exp2.default, "not_empty", vendors.not_empty)
    assert worst(found) is End.RAISED
    assert {trial.variant for trial in of_end(found, End.RAISED)} == {EXTENT}
    assert of_end(found, End.RAISED)[0].detail == "RuntimeError: an empty buffer"
    assert {trial.variant for trial in of_end(found, End.RIGHT)} > {EXTENT}


def test_results_are_counted() -> None:
    found = trials(aten.exp2.default, "with_one_more", vendors.with_one_more)
    assert {trial.end for trial in found} == {End.RAISED}


def test_the_bridge_is_right() -> None:
    found = trials(aten.exp2.default, "bridge", importer("bridge"))
    assert worst(found) is End.RIGHT
    assert {trial.dtype for trial in of_end(found, End.REFUSED)} == {"complex64"}


def test_tvms_own_importer_is_tried_the_same_way() -> None:
    assert worst(trials(aten.relu.default, "tvm", importer("tvm"))) is not End.REFUSED
    found = trials(aten.bitwise_right_shift.Tensor_Scalar, "tvm", importer("tvm"))
    assert {trial.end for trial in found} == {End.REFUSED}
    assert "no converter of aten.bitwise_right_shift.Tensor_Scalar" in found[0].detail


def test_an_importer_that_ends_its_process_costs_itself(tmp_path: Path) -> None:
    file = tmp_path / "conform.jsonl"
    write(file, [])
    name = "tests.conformance.vendors:crashing"
    ((_, found),) = sweep(["aten.exp2.default"], name, file, 1, 60.0)
    assert found[0].end is End.CRASHED
    assert found[0].detail.startswith("died: SIGABRT")
    assert tried(file, name) == {"aten.exp2.default": found}


def test_overloads_are_chosen_by_name() -> None:
    assert chosen(["aten.exp2.default"]) == chosen(["exp2"]) == chosen(["aten.exp2"]) == ["aten.exp2.default"]
    assert {"aten.add.Tensor", "aten.add.Scalar"} <= set(chosen(["add"]))
    assert len(chosen([])) > 300
    with pytest.raises(UnknownOp, match="no overload 'none'"):
        chosen(["none"])
    with pytest.raises(UnknownImporter, match="there are bridge, tvm"):
        importer("none")


def test_the_command_keeps_what_it_found_and_fails_if_something_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "conform.jsonl"

    def run(vendor: str) -> tuple[int, str]:
        name = f"tests.conformance.vendors:{vendor}"
        ended = CliRunner().invoke(app, ["conform", "exp2", "--importer", name, "--out", str(file)])
        return ended.exit_code, ended.output

    code, said = run("without_nan")
    assert code == 1
    assert "1/1 aten.exp2.default: " in said
    code, said = run("without_nan")
    assert code == 1
    assert "1/1" not in said, "the file has it already"
    assert run("eager")[0] == 0
    assert len(tried(file, "tests.conformance.vendors:without_nan")) == 1
