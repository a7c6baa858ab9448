"""The tuner's side: makes the plan of a program once more, and searches for better kernels, the hottest with most time.

A process of its own, with torch, so that kernels are timed on torch's threads. That it dies costs nothing but the
search: what the first worker built is there already.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tvm
from tvm_ffi.serialization import from_json_graph_str

from bridge.backends.tvm import threads
from bridge.backends.tvm.fuse import Plan
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Call
from bridge.backends.tvm.tune.blocks import NotTunable
from bridge.backends.tvm.tune.history import Entry, History, Verdict, described
from bridge.backends.tvm.tune.notes import STOP, Progress
from bridge.backends.tvm.tune.search import SEARCHED, Outcome, Subject, search, subject_of
from bridge.backends.tvm.work import Functions, Hardware, planned, step_of, write_library
from bridge.runtime.worker import serve

LEAST, USEFUL = 0.3, 3.0
"""Seconds below which a search is not worth its start, and those that a kernel gets at least while there are any."""

SEARCH_PART = 0.8
"""The part of a kernel's time in which proposals are tried. The rest is for comparing the best of them with ours."""

SEED = 1

ENOUGH = 0.5
"""A kernel that was searched for this part of its time before is not searched again."""


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Search as long as the request says, and write the library anew if something was found."""
    torch.set_num_threads(request["threads"])
    threads.install()
    folder = Path(request["folder"])
    module = from_json_graph_str(Path(request["module"]).read_text())
    hardware = Hardware(tvm.target.Target(request["target"]), frozenset())
    functions = Functions()
    tasks = _tasks(planned(request, module, hardware), hardware, functions)
    tuner = Tuner(hardware.target, request, folder)
    found = tuner.run(tasks, time.monotonic() + request["tune"])
    if found:
        write_library({**functions, **found}, hardware.target, folder)
    return {"library": bool(found), "stopped": tuner.stopped, "tuned": [task.told() for task in tasks]}


@dataclass
class Task:
    """One kernel of the program. calls: how often a run calls it. why: for what reason it was not searched for."""

    name: str
    nodes: Sequence[str]
    item: Kernel | None
    calls: int = 0
    why: str = ""
    subject: Subject | None = None
    weight: int = 0
    verdict: Verdict | None = None

    def told(self) -> dict[str, Any]:
        """As the answer says it."""
        verdict = described(self.verdict) if self.verdict else {}
        return {"kernel": self.name, "nodes": list(self.nodes), "calls": self.calls, "why": self.why, **verdict}


def _tasks(plan: Plan, hardware: Hardware, functions: Functions) -> list[Task]:
    """The kernels of a program, each once. `functions` are filled with ours."""
    tasks: dict[str, Task] = {}
    for number, item in enumerate(plan.items):
        step = step_of(item, number, hardware, functions)
        if not isinstance(item, Call):
            kernel = item if isinstance(item, Kernel) else None
            task = tasks.setdefault(step["kernel"], Task(step["kernel"], step["nodes"], kernel))
            task.calls += 1
    return list(tasks.values())


class Tuner:
    """Goes through the kernels of one program."""

    def __init__(self, target: Any, request: dict[str, Any], folder: Path) -> None:
        self._target, self._threads = target, request["threads"]
        self._history = History(target, request["threads"], request["keeps"])
        self._progress = Progress(folder)
        self._stop = folder / STOP

    @property
    def stopped(self) -> bool:
        """Whether whoever asked wants no more of it."""
        return self._stop.exists()

    def run(self, tasks: Sequence[Task], deadline: float) -> dict[str, Any]:
        """The kernels that are to be used in place of ours, by name."""
        for task in tasks:
            self._ready(task)
        hot = sorted((t for t in tasks if t.subject), key=lambda t: t.weight, reverse=True)
        found: dict[str, Any] = {}
        for number, task in enumerate(hot):
            left, weights = deadline - time.monotonic(), sum(other.weight for other in hot[number:])
            share = min(left, max(USEFUL, left * task.weight / max(weights, 1)))
            self._progress.write(task.name, number, len(hot), 0)
            function = self._of(task, share, lambda n, task=task, at=number: self._tell(task, at, len(hot), n))
            if function is not None:
                found[task.name] = function
            task.subject = None  # its memory is no longer wanted
        return found

    def _tell(self, task: Task, number: int, count: int, trials: int) -> None:
        self._progress.write(task.name, number, count, trials)

    def _ready(self, task: Task) -> None:
        """Say in blocks what a kernel does, and how much it moves."""
        if task.item is None:
            task.why = "it is loops already, or several kernels in one"
            return
        try:
            task.subject = subject_of(task.item, self._target, self._threads)
            task.why = task.subject.why
            task.weight = task.subject.weight * task.calls
        except NotTunable as reason:
            task.why = str(reason)
        except Exception as failure:  # whatever TVM says of the blocks
            task.why = f"{type(failure).__name__}: {failure}"

    def _of(self, task: Task, share: float, tell: Callable[[int], None]) -> Any | None:
        """What is to be used in place of ours: as it is known, or after a search."""
        subject = task.subject
        assert subject is not None
        with self._history.entry(subject.module, subject.made.function) as entry:
            known = entry.verdict
            if known is None or not (known.ended or known.seconds >= ENOUGH * share):
                if share < LEAST or self.stopped:
                    task.why = task.why if known else "no time was left for it"
                else:
                    self._searched(task, entry, share, tell)
            task.verdict = entry.verdict
            function = entry.function
        return None if function is None else function.with_attr("global_symbol", task.name)

    def _searched(self, task: Task, entry: Entry, share: float, tell: Callable[[int], None]) -> None:
        started = time.monotonic()
        before = entry.verdict or Verdict(0, 0.0, 0.0)
        assert task.subject is not None

        def goes_on(trials: int) -> bool:
            tell(trials)
            return time.monotonic() - started < SEARCH_PART * share and not self.stopped

        try:
            known = entry.function if before.by == SEARCHED else None
            outcome = search(task.subject, entry.folder, known, SEED + before.trials, goes_on)
            ours = task.subject.bench.seconds(task.subject.ours)
        except Exception as failure:  # MetaSchedule's own
            task.why = f"the search failed: {type(failure).__name__}: {failure}"
            return
        if not outcome.trials and not task.why:
            task.why = "MetaSchedule proposed nothing in its time"
        spent = before.seconds + time.monotonic() - started
        verdict = _verdict(outcome, before.trials, spent, ours)
        entry.keep(verdict, outcome.functions[verdict.by] if verdict.chosen else None)


def _verdict(outcome: Outcome, before: int, spent: float, ours: float) -> Verdict:
    trials, by = before + outcome.trials, outcome.best
    if by is None:
        return Verdict(trials, spent, ours, ended=outcome.ended)
    race, ratios = outcome.races[by], {name: race.ratio for name, race in outcome.races.items()}
    return Verdict(
        trials, spent, race.ours, race.found, race.ratio, race.spread, by, ratios, race.is_won, outcome.ended
    )


if __name__ == "__main__":
    sys.setrecursionlimit(20000)
    serve(handle)
