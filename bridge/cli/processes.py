"""Dry runs in processes of their own, several at a time: what crashes or hangs costs one target."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from bridge.cli.last_words import reason
from bridge.cli.targets import NOT_THERE
from bridge.errors import UnknownModel
from bridge.ledger import DeadEnd, Event, Record
from bridge.ledger.jsonl import read
from bridge.report.coverage import RAISED, TIMED_OUT

Child = subprocess.Popen[str]


def dry_runs(
    targets: Sequence[str],
    options: Mapping[str, Any],
    jobs: int,
    limit: float,
    done: Callable[[str, Sequence[Record]], object],
) -> tuple[list[Record], list[str]]:
    """The records of all targets, in their order, and what is wrong with those that are not there.

    limit: seconds that a target may take. done: is told of each when it is over.
    """
    children: set[Child] = set()
    found: dict[str, list[Record]] = {}
    unknown: list[str] = []
    pool = ThreadPoolExecutor(jobs)
    threads = max(1, len(os.sched_getaffinity(0)) // jobs)
    try:
        running = {pool.submit(dry_run, one, options, limit, threads, children): one for one in targets}
        for future in as_completed(running):
            try:
                found[running[future]] = future.result()
            except UnknownModel as error:
                unknown.append(str(error))
            done(running[future], found.get(running[future], ()))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in tuple(children):
            end(child)
    return [record for target in targets for record in found.get(target, ())], unknown


def dry_run(target: str, options: Mapping[str, Any], limit: float, threads: int, children: set[Child]) -> list[Record]:
    """The records of one target, or the event that it failed. children: holds the process meanwhile."""
    try:
        return records_of("bridge.cli.measure", target, [json.dumps(dict(options))], limit, children, threads)
    except ProcessEnded as ended:
        if ended.code == NOT_THERE:
            raise UnknownModel(ended.detail) from None
        return [ended.event(target)]


class ProcessEnded(Exception):
    """A process that gave no records: it failed with `code`, or its time was over."""

    def __init__(self, kind: str, detail: str, code: int = 0, seconds: float = 0.0, source: str = "") -> None:
        super().__init__(detail)
        self.kind, self.detail, self.code, self.seconds, self.source = kind, detail, code, seconds, source

    def event(self, model: str) -> Event:
        """What is told of it."""
        seconds, source = self.seconds, self.source
        return Event(DeadEnd.MAINTENANCE, "step", self.detail, self.kind, source=source, seconds=seconds, model=model)


def records_of(
    module: str,
    name: str,
    more: Sequence[str],
    limit: float,
    children: set[Child],
    threads: int = 1,
    folder: Path | None = None,
) -> list[Record]:
    """What `python -m module name FILE more…` writes into the file, run in a folder. Raises ProcessEnded.

    The process is ended with all its children after `limit` seconds. children: holds it as long as it runs.
    threads: of each of its parallel loops, unless OMP_NUM_THREADS says otherwise.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "records.jsonl"
        child = subprocess.Popen(
            [sys.executable, "-m", module, name, str(file), *more],
            cwd=folder,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.add(child)
        try:
            said = child.communicate(timeout=limit)[1]
        except subprocess.TimeoutExpired:
            raise ProcessEnded(TIMED_OUT, f"not done after {limit:.0f} s", seconds=limit) from None
        finally:
            end(child)
            children.discard(child)
        if child.returncode == 0 and file.exists():
            return list(read(file).records)
        detail, source = reason(said, child.returncode) if child.returncode else ("", "")
        detail = detail[:1000] or f"the process ended with {child.returncode}"
        raise ProcessEnded(RAISED, detail, child.returncode, source=source)


def end(child: Child) -> None:
    """End a process that still runs, and those that it started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
