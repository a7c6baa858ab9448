"""The whole demonstration: both trainings on every target, and the files that tell of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import nn

import bridge
from bridge.demo.digits import digits_task
from bridge.demo.task import Task
from bridge.demo.text import text_task
from bridge.demo.timing import machine
from bridge.demo.training import fresh_model, step_times, train
from bridge.ir.tally import tally
from bridge.ledger import Measure, Record
from bridge.ledger.jsonl import read, write
from bridge.report.figure import write_figure
from bridge.report.html import report_html
from bridge.report.report import Report, make_report

TASKS = {"digits": digits_task, "text": text_task}
EAGER, BRIDGE, INDUCTOR = "eager", "bridge", "inductor"
INDUCTOR_STEPS = 3
INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"
ROUNDS = 20


def run_demo(out: Path, console: Console, target: str = "tvm", tasks: Sequence[str] = tuple(TASKS)) -> Report:
    """Train the tasks through eager and through the bridge, time both and Inductor, and write ledger, page and PNG.

    Returns the report, made from the file that was written.
    """
    start = perf_counter()
    about = {"command": f"bridge demo --target {target}", **machine()}
    records: list[Record] = []
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console,
    )  # fmt: skip
    with progress, _empty_inductor_cache():
        for name in tasks:
            task = TASKS[name]()
            about[name] = task.title
            records += run_task(task, target, progress)
    about["duration"] = f"{perf_counter() - start:.0f} s"
    write(out / "ledger.jsonl", records, about)
    report = make_report(read(out / "ledger.jsonl"))
    (out / "report.html").write_text(report_html(report), encoding="utf-8")
    write_figure(report, out / "losses.png")
    return report


def run_task(task: Task, target: str, progress: Progress) -> list[Record]:
    """Train one task on eager and on `target`, give Inductor a few steps, and time a step of each."""
    models: dict[str, nn.Module] = {
        EAGER: fresh_model(task),
        BRIDGE: bridge.compile(fresh_model(task), target=target),
        INDUCTOR: torch.compile(fresh_model(task)),  # type: ignore[dict-item]
    }
    records: list[Record] = []
    for name, model in models.items():
        steps = INDUCTOR_STEPS if name == INDUCTOR else task.steps
        with _bar(progress, f"{task.name}: train with {name}", steps) as advance:
            training = train(task, model, advance, steps)
        losses = training.losses
        progress.console.print(
            f"{task.name}: {name}: first call {training.first_call:.1f} s, "
            f"loss {losses[0]:.3f} → {losses[-1]:.3f} in {len(losses)} steps"
        )
        records.append(Measure("first call", (training.first_call,), "s", name, task.name))
        if name != INDUCTOR:
            records.append(Measure("loss", training.losses, "", name, task.name))
            if task.score is not None:
                records.append(Measure("test accuracy", (task.score(model),), "%", name, task.name))
    with _bar(progress, f"{task.name}: time a step of each", ROUNDS) as advance:
        times = step_times(task, models, ROUNDS, advance)
    records += [Measure("step", readings, "s", name, task.name) for name, readings in times.items()]
    return records + what_ran(models[BRIDGE], task)


def what_ran(compiled: nn.Module, task: Task) -> list[Record]:
    """The placement and the events of a compiled model, and what an audit of one step finds that no graph holds."""
    batch = next(task.batches())
    audit = bridge.audit(lambda: compiled(*batch).backward())
    uncaptured = sum(call.count for call in audit.uncaptured)
    compilation = bridge.inspect(compiled)
    return [
        *tally(compilation.graphs, task.name),
        *(replace(event, model=task.name) for event in compilation.ledger),
        Measure("kernels called in a step", (audit.kernels,), "", BRIDGE, task.name),
        Measure("uncaptured calls in a step", (uncaptured,), "", BRIDGE, task.name),
    ]


@contextmanager
def _empty_inductor_cache() -> Iterator[None]:
    """Inductor compiles anew, so that its first call is comparable with ours."""
    before = os.environ.get(INDUCTOR_CACHE)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ[INDUCTOR_CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(INDUCTOR_CACHE)
            if before is not None:
                os.environ[INDUCTOR_CACHE] = before


@contextmanager
def _bar(progress: Progress, description: str, total: int) -> Iterator[Callable[[], object]]:
    task = progress.add_task(description, total=total)
    yield lambda: progress.advance(task)
    progress.update(task, completed=total)
