"""The worker survives what it is for: crashes, hangs, noise, forks, threads, and the end of its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import bridge
from bridge.errors import WorkerFailure
from bridge.runtime.worker import Worker, shared

SERVED = "served"
ROOT = Path(bridge.__file__).parents[1]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    worker = Worker(SERVED)
    yield worker
    worker.close()


def echo(worker: Worker, say: object = "hello") -> dict:
    return worker.call({"do": "echo", "say": say}, timeout=30)


def test_answers_and_stays(worker: Worker) -> None:
    assert worker.pid is None
    first, second = echo(worker), echo(worker, {"nested": [1, 2.5, None, "ü"]})
    assert first["said"] == "hello"
    assert second["said"] == {"nested": [1, 2.5, None, "ü"]}
    assert first["pid"] == second["pid"] == worker.pid != os.getpid()


def test_can_be_started_ahead_of_a_call(worker: Worker) -> None:
    worker.start()
    pid = worker.pid
    worker.start()
    assert echo(worker)["pid"] == pid == worker.pid


def test_what_cannot_be_started_ahead_is_told_by_the_call(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    worker.start()
    with pytest.raises(WorkerFailure, match="cannot be started"):
        echo(worker)


def test_something_is_done_while_the_child_works(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "go"
    answer = worker.call({"do": "wait", "file": str(file)}, timeout=30, meanwhile=file.touch)
    assert answer == {"came": True}


def test_what_is_done_meanwhile_is_not_charged_to_the_child(worker: Worker) -> None:
    assert echo(worker)["said"]
    answer = worker.call({"do": "echo", "say": "late"}, timeout=1, meanwhile=lambda: time.sleep(1.2))
    assert answer["said"] == "late"


def test_what_fails_meanwhile_ends_the_child(worker: Worker) -> None:
    with pytest.raises(ZeroDivisionError):
        worker.call({"do": "echo", "say": 1}, timeout=30, meanwhile=lambda: print(1 // 0))
    assert echo(worker, "again")["said"] == "again"


def test_carries_more_than_a_pipe_holds(worker: Worker) -> None:
    long = "x" * 3_000_000
    assert echo(worker, long)["said"] == long


def test_error_answer_carries_the_message_and_keeps_the_child(worker: Worker) -> None:
    pid = echo(worker)["pid"]
    with pytest.raises(WorkerFailure, match="ValueError: no such op: aten.sort") as caught:
        worker.call({"do": "fail", "op": "aten.sort"}, timeout=30)
    assert caught.value.kind == "error"
    assert echo(worker)["pid"] == pid


def test_answer_that_is_not_json_is_an_error(worker: Worker) -> None:
    with pytest.raises(WorkerFailure, match="TypeError") as caught:
        worker.call({"do": "unanswerable"}, timeout=30)
    assert caught.value.kind == "error"


def test_segfault_is_named_with_the_last_words_of_its_own_call(worker: Worker) -> None:
    pid = echo(worker)["pid"]
    with pytest.raises(WorkerFailure) as caught:
        worker.call({"do": "segfault"}, timeout=30)
    assert caught.value.kind == "died"
    assert caught.value.detail == "SIGSEGV\nLLVM ERROR: about to die"
    assert echo(worker)["pid"] != pid


@pytest.mark.parametrize("name", ["SIGABRT", "SIGKILL"])
def test_other_signals_are_named(worker: Worker, name: str) -> None:
    with pytest.raises(WorkerFailure, match=f"died: {name}"):
        worker.call({"do": "signal", "name": name}, timeout=30)


def test_exit_is_a_death(worker: Worker) -> None:
    with pytest.raises(WorkerFailure, match="exit status 3") as caught:
        worker.call({"do": "exit"}, timeout=30)
    assert caught.value.kind == "died"


def test_module_that_is_not_there() -> None:
    with pytest.raises(WorkerFailure, match="No module named") as caught:
        Worker("no_such_module").call({}, timeout=30)
    assert caught.value.kind == "died"


def test_hang_is_killed_in_time(worker: Worker, tmp_path: Path) -> None:
    pid = echo(worker)["pid"]
    began = time.monotonic()
    with pytest.raises(WorkerFailure, match="no answer in 0.5 s") as caught:
        worker.call({"do": "hang", "file": str(tmp_path / "pid")}, timeout=0.5)
    assert caught.value.kind == "hung"
    assert time.monotonic() - began < 10
    assert not is_alive(pid)
    assert echo(worker)["pid"] != pid


def test_death_between_two_calls_costs_nothing(worker: Worker) -> None:
    pid = echo(worker)["pid"]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert echo(worker)["said"] == "hello"


def test_threads_get_their_own_answers(worker: Worker) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert [a["said"] for a in pool.map(lambda n: echo(worker, n), range(40))] == list(range(40))


def test_blocked_import_fails(worker: Worker) -> None:
    with pytest.raises(WorkerFailure, match="import of torch halted"):
        worker.call({"do": "import torch"}, timeout=30)


def test_fork_has_a_child_of_its_own(worker: Worker) -> None:
    pid = echo(worker)["pid"]
    forked = os.fork()
    if forked == 0:
        try:
            own = echo(worker)["pid"]
            worker.close()
            os._exit(0 if own != pid else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert echo(worker)["pid"] == pid


def test_fork_that_holds_the_pipes_hides_no_death(worker: Worker) -> None:
    """The bystander is forked without Python's fork hooks, as a C library would."""
    import ctypes

    echo(worker)
    bystander = ctypes.CDLL(None).fork()
    if bystander == 0:
        time.sleep(60)
        os._exit(0)
    try:
        with pytest.raises(WorkerFailure, match="SIGKILL"):
            worker.call({"do": "signal", "name": "SIGKILL"}, timeout=30)
    finally:
        os.kill(bystander, signal.SIGKILL)
        os.waitpid(bystander, 0)


def test_interrupt_leaves_no_stale_answer(worker: Worker, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    pid = echo(worker)["pid"]
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            worker.call({"do": "hang", "file": str(tmp_path / "pid")}, timeout=30)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert echo(worker)["pid"] != pid


def test_shared_is_one_for_a_module() -> None:
    assert shared("a") is shared("a")
    assert shared("a") is not shared("b")


PARENT = textwrap.dedent("""
    import sys
    sys.path[:0] = [{served!r}, {root!r}]
    from bridge.runtime.worker import Worker
    print("main ran", flush=True)
    worker = Worker("served")
    {then}
""")


def run_parent(then: str, *flags: str, root: str | Path = ROOT, cwd: str | Path = "/") -> subprocess.Popen[str]:
    script = PARENT.format(served=str(Path(__file__).parent), root=str(root), then=then)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, *flags, "-c", script], stdout=subprocess.PIPE, text=True, cwd=cwd, env=environment
    )


@pytest.mark.parametrize("flags", [(), ("-I",), ("-P",), ("-O",)], ids=str)
def test_any_kind_of_parent(flags: tuple[str, ...], tmp_path: Path) -> None:
    """The child imports the parent's bridge, not one that lies in the working directory, and runs no user code."""
    (tmp_path / "bridge").mkdir()
    (tmp_path / "bridge" / "__init__.py").write_text("raise RuntimeError('the wrong bridge')")
    parent = run_parent("print(worker.call({'do': 'where'}, 30)['bridge'])", *flags, cwd=tmp_path)
    assert parent.communicate(timeout=60)[0].splitlines() == ["main ran", bridge.__file__]


def test_zipped_bridge(tmp_path: Path) -> None:
    archive = tmp_path / "bridge.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("__init__.py", "errors.py", "runtime/__init__.py", "runtime/worker.py"):
            packed.write(ROOT / "bridge" / name, f"bridge/{name}")
    parent = run_parent("print(worker.call({'do': 'where'}, 30)['bridge'])", root=archive)
    assert parent.communicate(timeout=60)[0].splitlines()[1] == str(archive / "bridge" / "__init__.py")


def test_ends_with_a_parent_that_ends() -> None:
    parent = run_parent("print(worker.call({'do': 'echo', 'say': 1}, 30)['pid'])")
    wait_until_dead(int(parent.communicate(timeout=60)[0].split()[-1]))


def test_ends_in_the_middle_of_its_work_when_the_parent_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    parent = run_parent(f"worker.call({{'do': 'hang', 'file': {str(file)!r}}}, 600)")
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.kill()
    parent.communicate(timeout=10)
    wait_until_dead(int(file.read_text()))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)
