"""Measure many models, each in a process of its own, and keep what is found at once, so that a run can be taken up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bridge.ledger import DeadEnd, Event, Record
from bridge.ledger.jsonl import append, read, write

ROOT = Path(__file__).parents[1]

RAISED, TIMED_OUT = "raised", "timed out"
"""Kinds of the events for a process that did not come to its end."""

Child = subprocess.Popen[str]


def records_of(module: str, name: str, more: Sequence[str], limit: float, children: set[Child]) -> list[Record]:
    """What `python -m module name FILE more…` writes into the file, or one event that says why it wrote nothing.

    The process is ended with all its children after `limit` seconds. children: holds it as long as it runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.jsonl"
        child = subprocess.Popen(
            [sys.executable, "-m", module, name, str(file), *more],
            cwd=ROOT,
            env={"OMP_NUM_THREADS": "1", **os.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.add(child)
        try:
            said = child.communicate(timeout=limit)[1]
        except subprocess.TimeoutExpired:
            return [_failed(name, TIMED_OUT, f"not done after {limit:.0f} s", limit)]
        finally:
            end(child)
            children.discard(child)
        if child.returncode == 0:
            return list(read(file).records)
        last = [line.strip() for line in said.splitlines() if line.strip()][-1:]
        return [_failed(name, RAISED, "".join(last)[:500] or f"the process ended with {child.returncode}")]


def end(child: Child) -> None:
    """End a process that still runs, and those that it started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def sweep(
    names: Sequence[str],
    measure: Callable[[str, set[Child]], list[Record]],
    tell: Callable[[str, list[Record]], str],
    file: Path,
    jobs: int,
    console: Console,
) -> None:
    """Measure the models, so many at a time, add each to the file when it is done, and tell of it on a line."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    children: set[Child] = set()
    pool = ThreadPoolExecutor(jobs)
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("models", total=len(names))
            running = {pool.submit(measure, name, children): name for name in names}
            for done in as_completed(running):
                append(file, done.result())
                progress.console.print(f"{running[done]}: {tell(running[done], done.result())}")
                progress.advance(task)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in tuple(children):
            end(child)


def forget(file: Path, names: Sequence[str]) -> None:
    """Take models out of a file of results."""
    held = read(file)
    write(file, [record for record in held.records if record.model not in names], held.about)


def _failed(name: str, kind: str, detail: str, seconds: float = 0.0) -> Event:
    return Event(DeadEnd.MAINTENANCE, "step", detail, kind, seconds=seconds, model=name)
