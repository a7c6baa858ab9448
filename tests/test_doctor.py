"""`bridge doctor` finds what is wrong, says what to do about it, and survives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bridge.doctor import State
from bridge.doctor.names import checked, recorded
from bridge.doctor.routes import ended
from bridge.signatures import Sources
from bridge.touched import TORCH, Touched

ROOT = Path(__file__).parents[1]
SERIES = ".".join(torch.__version__.split(".")[:2])

UNREAD = {
    "2.15": {
        "torch._C._autograd._get_current_graph_task_keep_graph",
        "torch._C._cuda_clearCublasWorkspaces",
        "torch._C._storage_Use_Count",
        "torch._dynamo.config.capture_dynamic_output_shape_ops",
        "torch._dynamo.config.capture_scalar_outputs",
        "torch._dynamo.maybe_mark_dynamic",
        "torch._functorch.config.cse",
        "torch._functorch.config.patch",
    }
}
"""Names that came into use after the wheel of a series was read, and were not looked for in it since."""


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bridge", "doctor", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert "Traceback" not in done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)}


def test_all_is_well_here() -> None:
    found = checks(done := doctor("--json"))
    assert not [check for check in found.values() if check["state"] == "wrong"]
    assert done.returncode == 0
    assert "compiled and run, forward and backward" in found["kernel"]["detail"]
    assert {"packages", "machine", "torch", "tvm", "routes"} == {check["group"] for check in found.values()}
    assert {touched.name for touched in TORCH} <= set(found)
    assert not [name for name, check in found.items() if "is not recorded" in check["detail"]]


def test_broken_packages_are_lines_and_no_crash(tmp_path: Path) -> None:
    for name in ("torch", "tvm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this test has none')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    broken = {"PYTHONPATH": path, "CXX": "no-such-compiler", "BRIDGE_CACHE_DIR": "/dev/null/cache"}
    found = checks(done := doctor("--json", **broken))
    assert done.returncode == 1
    assert found["C++ compiler"]["detail"] == "there is no no-such-compiler"
    assert found["C++ compiler"]["remedy"] == "install g++, or set CXX"
    assert found["cache"]["state"] == "wrong"
    assert found["torch._dynamo.optimize"]["state"] == "wrong"
    assert "this test has none" in found["kernel"]["detail"] or "not tried" in found["kernel"]["detail"]
    printed = doctor(**broken)
    assert printed.returncode == 1
    assert "→ install g++, or set CXX" in printed.stdout


def test_a_death_names_its_signal() -> None:
    assert ended(subprocess.CompletedProcess([], -11, "", "Aborted\nlast words")) == "it ended with SIGSEGV: last words"
    assert ended(subprocess.CompletedProcess([], 3, "", "")) == "it ended with exit status 3"


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("def _f(a, b=1): ...\n")
    return Sources(tmp_path)


@pytest.mark.parametrize(
    ("touched", "known", "state", "words"),
    [
        (Touched("torch._f", {"": "f(a)"}), "(a, b=1)", State.OK, "as recorded for 2.14"),
        (Touched("torch._f", {"": "f(a)"}), "(a)", State.NOTE, "it is (a, b=1), and was (a) in 2.14"),
        (Touched("torch._f", {"": "f(a)", "2.14": "f(a, c=1)"}), "(a, b=1)", State.WRONG, "it has no parameter c"),
        (Touched("torch._f", {"": "f(a)", "2.15": "f(a, c=1)"}), "(a, b=1)", State.OK, "as recorded"),
        (Touched("torch._f"), None, State.NOTE, "is not recorded for 2.14"),
        (Touched("torch._g"), "(a)", State.WRONG, "it is not there; nothing is compiled without it"),
        (Touched("torch._g", without="a tool"), "(a)", State.NOTE, "lost without it: a tool"),
        (Touched("torch._f", mentioned="torch/__init__.py"), "mentioned", State.OK, "as recorded"),
        (Touched("torch._g", mentioned="torch/__init__.py"), "mentioned", State.WRONG, "it is not there"),
    ],
)
def test_a_name_is_compared_with_what_was_recorded(
    sources: Sources, touched: Touched, known: str | None, state: State, words: str
) -> None:
    check = checked(touched, touched.found(sources), known, "2.14")
    assert check.state is state
    assert words in check.detail
    assert bool(check.remedy) == (state is not State.OK)


@pytest.mark.parametrize("series", ["2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15"])
def test_what_is_touched_is_recorded_for_every_series(series: str) -> None:
    """What came into use after a wheel was read is recorded for none, which the doctor notes."""
    known, unread = set(recorded()["torch"][series]), UNREAD.get(series, set())
    assert known == {touched.name for touched in TORCH} - unread, "probe a wheel of each series with --keep --record"


def test_what_is_recorded_is_what_is_installed() -> None:
    """Wheels of different systems hold the same sources, so what was read of one holds for all."""
    folder = Path(torch.__path__[0]).parent
    known, sources = recorded()["torch"][SERIES], Sources(folder)
    unread = UNREAD.get(SERIES, set())
    touched = [one for one in TORCH if one.name not in unread]
    assert {one.name: getattr(one.found(sources), "text", "") for one in touched} == known
