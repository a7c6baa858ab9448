"""Parallel loops of compiled libraries run on torch's threads, and lose no element, whatever OpenMP grants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import tvm
from tvm.script import ir as I
from tvm.script import tirx as T  # pyright: ignore[reportMissingModuleSource]
from tvm.target import Target

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

    @T.prim_func
    def two_loops(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (4096,), "float32", align=4)
        B = T.match_buffer(b, (4096,), "float32", align=4)
        with T.attr(0, "pragma_parallel_launch_point", 1):
            with T.attr(0, "pragma_parallel_barrier_when_finish", 1):
                for i in T.parallel(4096):
                    A[i] = T.Cast("float32", i)
            for i in T.parallel(4096):
                B[i] = A[4095 - i]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels as the build makes them: a shared library, written by another process than the one that runs them."""
    path = tmp_path_factory.mktemp("threads") / "kernels.so"
    tvm.compile(Kernels, target=Target("llvm")).export_library(str(path))
    return path


def passed(library: Path, scenarios: list[str], **environment: str) -> list[str]:
    """The scenarios that passed, in a process with these variables, up to the first that did not."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "TVM_", "MKL_"))}
    done = subprocess.run(
        [sys.executable, str(THREADED), str(library), *scenarios],
        env={**clean, "PYTHONPATH": str(Path(bridge.__file__).parents[1]), **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=180,
    )
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("passed ")]


@pytest.fixture(scope="module")
def passed_here(library: Path) -> list[str]:
    return passed(library, SCENARIOS)


SCENARIOS = [
    "runs_on_torchs_threads",
    "computes_every_element",
    "follows_set_num_threads",
    "in_python_threads",
    "inside_an_openmp_region",
    "in_data_loader_workers",
    "in_a_bare_fork",
    "failure_in_a_task",
    "waits_at_a_barrier",
    "installs_once",
    "several_openmp_libraries",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(passed_here: list[str], scenario: str) -> None:
    assert scenario in passed_here


@pytest.mark.parametrize(
    ("environment", "scenarios"),
    [
        ({"OMP_NUM_THREADS": "1"}, ["computes_every_element"]),
        ({"OMP_NUM_THREADS": "8", "OMP_DYNAMIC": "true"}, ["computes_every_element", "team_is_smaller_than_asked"]),
        ({"OMP_NUM_THREADS": "8", "OMP_THREAD_LIMIT": "3"}, ["computes_every_element", "team_is_smaller_than_asked"]),
        ({"OMP_NESTED": "true", "TVM_NUM_THREADS": "7"}, ["computes_every_element", "runs_on_torchs_threads"]),
    ],
    ids=["one thread", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "OMP_NESTED and TVM_NUM_THREADS"],
)
def test_environment(library: Path, environment: dict[str, str], scenarios: list[str]) -> None:
    assert passed(library, scenarios, **environment) == scenarios


def test_torch_without_openmp_keeps_tvms_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.__config__, "parallel_info", lambda: "ATen parallel backend: native thread pool")
    assert threads.install.__wrapped__() == "kernels run on TVM's own thread pool: this torch was built without OpenMP"


def test_openmp_without_a_function_keeps_tvms_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(threads._CALLED, "parallel", "GOMP_parallel_that_is_not_there")
    assert "has no GOMP_parallel_that_is_not_there" in str(threads.install.__wrapped__())
