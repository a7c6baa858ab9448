"""Parallel loops of compiled libraries run on torch's threads, and lose no element, whatever OpenMP grants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import bridge
from bridge.backends.tvm import threads

THREADED = Path(__file__).parent / "threaded.py"


@I.ir_module
class Kernels:
    @T.prim_func
    def affine(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32", align=4)
        B = T.match_buffer(b, (n,), "float32", align=4)
        for i in T.parallel(n):
            B[i] = A[i] * T.float32(2) + T.float32(1)

    @T.prim_func
    def where(b: T.handle):
        B = T.match_buffer(b, (64,), "int32", align=4)
        for i in T.parallel(64):
            B[i] = T.call_extern("int32", "gettid")

    @T.prim_func
    def nested(b: T.handle):
        B = T.match_buffer(b, (3,), "int32", align=4)
        for i in T.parallel(3):
            B[i] = i
            T.evaluate(T.call_packed("test.inner"))

    @T.prim_func
    def fails(b: T.handle):
        B = T.match_buffer(b, (64,), "int32", align=4)
        for i in T.parallel(64):
            assert B[i] == i, "not its own index"
            B[i] = 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels as the build makes them: a shared library, written by another process than the one that runs them."""
    path = tmp_path_factory.mktemp("threads") / "kernels.so"
    tvm.compile(Kernels, target="llvm").export_library(str(path))
    return path


def run(scenario: str, library: Path, **environment: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "TVM_", "MKL_"))}
    done = subprocess.run(
        [sys.executable, str(THREADED), scenario, str(library)],
        env={**clean, "PYTHONPATH": str(Path(bridge.__file__).parents[1]), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith(f"passed {scenario}\n")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "5"},
        {"OMP_NUM_THREADS": "8", "OMP_DYNAMIC": "true"},
        {"OMP_NUM_THREADS": "8", "OMP_THREAD_LIMIT": "3"},
        {"OMP_NUM_THREADS": "4", "OMP_NESTED": "true"},
        {"TVM_NUM_THREADS": "7", "OMP_NUM_THREADS": "2"},
    ],
    ids=lambda environment: ",".join(f"{name}={value}" for name, value in environment.items()) or "none",
)
def test_computes_every_element(library: Path, environment: dict[str, str]) -> None:
    run("plain", library, **environment)


@pytest.mark.parametrize(
    "scenario",
    [
        "runs_on_torchs_threads",
        "follows_set_num_threads",
        "in_python_threads",
        "inside_an_openmp_region",
        "in_data_loader_workers",
        "in_a_bare_fork",
        "failure_in_a_task",
        "installs_once",
        "several_openmp_libraries",
    ],
)
def test_scenario(library: Path, scenario: str) -> None:
    run(scenario, library)


@pytest.mark.parametrize("setting", [{"OMP_THREAD_LIMIT": "3"}, {"OMP_DYNAMIC": "true"}], ids=str)
def test_team_may_be_smaller_than_asked(library: Path, setting: dict[str, str]) -> None:
    run("team_is_smaller_than_asked", library, **setting)


def test_torch_without_openmp_keeps_tvms_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.__config__, "parallel_info", lambda: "ATen parallel backend: native thread pool")
    assert threads.install.__wrapped__() == "kernels run on TVM's own thread pool: this torch was built without OpenMP"


def test_openmp_without_a_function_keeps_tvms_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(threads._CALLED, "parallel", "GOMP_parallel_that_is_not_there")
    assert "has no GOMP_parallel_that_is_not_there" in str(threads.install.__wrapped__())
