"""Which models of the corpus train through the bridge as they do in eager, and what of them ran elsewhere.

    python -m experiments.coverage.run [NAMES] [--no-library] [--again] [--jobs 1] [--limit 300]

Each model runs in a process of its own, on one thread unless OMP_NUM_THREADS says otherwise. What is found is added to
the file of results at once, and a model that is there already is left out, so the run can be stopped and taken up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bridge.demo.timing import machine
from bridge.ledger import DeadEnd, Event, Record
from bridge.ledger.jsonl import append, read, write
from experiments.corpus import MODELS, SKIPPED
from experiments.coverage.step import RAISED, TIMED_OUT
from experiments.coverage.summary import print_summary, verdicts

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"


Child = subprocess.Popen[str]


def measure_apart(name: str, library: bool, limit: float, children: set[Child]) -> list[Record]:
    """The records of one model, from a process that is ended with all its children when the time is over.

    children: holds the process as long as it runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.jsonl"
        command = [sys.executable, "-m", "experiments.coverage.step", name, str(file)]
        command += [] if library else ["--no-library"]
        child = subprocess.Popen(
            command,
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


def _failed(name: str, kind: str, detail: str, seconds: float = 0.0) -> Event:
    return Event(DeadEnd.MAINTENANCE, "step", detail, kind, seconds=seconds, model=name)


def sweep(names: Sequence[str], file: Path, library: bool, jobs: int, limit: float, console: Console) -> None:
    """Measure the models, so many at a time, and add each to the file when it is done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    children: set[Child] = set()
    pool = ThreadPoolExecutor(jobs)
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("models", total=len(names))
            running = {pool.submit(measure_apart, name, library, limit, children): name for name in names}
            for done in as_completed(running):
                append(file, done.result())
                progress.console.print(f"{running[done]}: {verdicts(done.result())[running[done]]}")
                progress.advance(task)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in tuple(children):
            end(child)


def forget(file: Path, names: Sequence[str]) -> None:
    """Take models out of a file of results."""
    held = read(file)
    write(file, [record for record in held.records if record.model not in names], held.about)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Models of the corpus; all if none is named.")] = None,
    library: Annotated[bool, typer.Option(help="Call ATen for matrix products, convolutions and attention.")] = True,
    again: Annotated[bool, typer.Option(help="Measure also what the file has already.")] = False,
    jobs: Annotated[int, typer.Option(help="Models at a time.")] = 1,
    limit: Annotated[float, typer.Option(help="Seconds that a model may take.")] = 300.0,
    file: Annotated[Path | None, typer.Option(help="The file of results.")] = None,
) -> None:
    """Train a step of each model of the corpus and tell what is wrong, what fell back and what was not captured."""
    chosen = list(names or MODELS)
    for name in chosen:
        if name not in MODELS:
            reason = SKIPPED.get(name, "the corpus has no such model")
            raise typer.BadParameter(f"{name}: {reason}")
    console = Console()
    file = file or RESULTS / ("corpus.jsonl" if library else "corpus_generated.jsonl")
    if not file.exists():
        write(file, [], {"command": "python -m experiments.coverage.run", **machine()})
    if again:
        forget(file, chosen)
    known = verdicts(read(file).records)
    sweep([name for name in chosen if name not in known], file, library, jobs, limit, console)
    print_summary(read(file).records, console, chosen)


if __name__ == "__main__":
    typer.run(main)
