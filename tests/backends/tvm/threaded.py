"""Programs for the tests of the thread pool, run in a process of their own: `python threaded.py library scenario ...`.

A scenario installs the launcher, loads the library's kernels, asserts, and is named on stdout when all of it held.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import tvm
from tvm_ffi import Module

from bridge.backends.tvm import threads

LIBRARY = sys.argv[1]


def kernels() -> Module:
    assert threads.install() is None
    return tvm.runtime.load_module(LIBRARY)


def check(kernels: Module, size: int = 100_003) -> None:
    """Every element of a parallel kernel's output, an offset view as input."""
    x = torch.arange(size + 1, dtype=torch.float32)[1:]
    out = torch.full((size,), -1.0)
    kernels["affine"](x, out)
    assert torch.equal(out, x * 2 + 1)


def ran_on(kernels: Module) -> set[int]:
    """The system's numbers of the threads that run a parallel loop."""
    out = torch.zeros(64, dtype=torch.int32)
    kernels["where"](out)
    return set(out.tolist())


def alive() -> set[int]:
    return {int(thread) for thread in os.listdir("/proc/self/task")}


def computes_every_element() -> None:
    loaded = kernels()
    for size in (0, 1, 2, 3, 7, 100_003):
        check(loaded, size)


def runs_on_torchs_threads() -> None:
    loaded = kernels()
    torch.set_num_threads(3)
    torch.ones(4_000_000).exp_()
    torchs = alive()
    used = ran_on(loaded)
    assert len(used) == 3
    assert used <= torchs
    assert alive() <= torchs


def follows_set_num_threads() -> None:
    loaded = kernels()
    for count in (1, 4, 2, 1, 3):
        torch.set_num_threads(count)
        assert len(ran_on(loaded)) == count
        check(loaded)


def in_python_threads() -> None:
    """A thread that torch has not met yet gets torch's number of threads, not OpenMP's default."""
    loaded = kernels()
    torch.set_num_threads(2)
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(lambda _: len(ran_on(loaded)), range(6))) == {2}
        list(pool.map(lambda n: check(loaded, 50_000 + n), range(60)))


def inside_an_openmp_region() -> None:
    """A kernel called from a kernel's parallel loop runs on the one thread that calls it."""
    loaded = kernels()
    torch.set_num_threads(3)
    seen: list[set[int]] = []

    def inner() -> None:
        seen.append(ran_on(loaded))
        check(loaded, 1000)

    tvm.register_global_func("test.inner", inner, override=True)
    loaded["nested"](torch.zeros(3, dtype=torch.int32))
    assert len(seen) == 3
    assert all(len(used) == 1 for used in seen)
    assert len(set.union(*seen)) == 3


def in_data_loader_workers() -> None:
    loaded = kernels()
    torch.set_num_threads(3)
    check(loaded)
    torch.ones(4_000_000).exp_()

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> torch.Tensor:
            check(loaded)
            return torch.tensor(index)

    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context="fork", timeout=30)
    assert sorted(int(row) for row in loader) == list(range(8))
    check(loaded)


def in_a_bare_fork() -> None:
    """OpenMP's own threads do not survive a fork: a team would be waited for in vain, as torch's larger ops do."""
    loaded = kernels()
    torch.set_num_threads(3)
    check(loaded)
    forked = os.fork()
    if forked == 0:
        check(loaded, 1000)
        os._exit(0 if ran_on(loaded) == {os.getpid()} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert len(ran_on(loaded)) == 3


def team_is_smaller_than_asked() -> None:
    """OMP_THREAD_LIMIT and OMP_DYNAMIC give fewer threads than torch counts on."""
    loaded = kernels()
    torch.set_num_threads(8)
    assert len(ran_on(loaded)) < 8
    check(loaded)


def failure_in_a_task() -> None:
    loaded = kernels()
    torch.set_num_threads(4)
    for _ in range(20):
        try:
            loaded["fails"](torch.zeros(64, dtype=torch.int32))
        except (RuntimeError, ValueError):
            pass
        else:
            raise AssertionError("a failure in a parallel task was lost")
        check(loaded)


def waits_at_a_barrier() -> None:
    """The second loop of one region reads what other threads wrote in the first."""
    loaded = kernels()
    torch.set_num_threads(4)
    for _ in range(100):
        x, out = torch.zeros(4096), torch.zeros(4096)
        loaded["two_loops"](x, out)
        assert torch.equal(out, torch.arange(4096.0).flip(0))


def installs_once() -> None:
    assert threads.install() is None
    before = alive()
    assert threads.install() is None
    assert alive() == before


def several_openmp_libraries() -> None:
    import sklearn.cluster

    sklearn.cluster.KMeans(2).fit(torch.rand(1000, 4).numpy())
    mapped = Path("/proc/self/maps").read_text().splitlines()
    assert len({line.split()[-1] for line in mapped if "libgomp" in line}) > 1
    runs_on_torchs_threads()


if __name__ == "__main__":
    for scenario in sys.argv[2:]:
        globals()[scenario]()
        print("passed", scenario, flush=True)
