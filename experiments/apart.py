"""Measure many models, each in a process of its own, and keep what is found at once, so that a run can be taken up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bridge.cli.processes import Child, ProcessEnded, end, records_of
from bridge.demo.timing import machine
from bridge.ledger import Record
from bridge.ledger.jsonl import append, read, write

ROOT = Path(__file__).parents[1]


def measured_apart(module: str, name: str, more: Sequence[str], limit: float, children: set[Child]) -> list[Record]:
    """What `python -m module name FILE more…` writes into the file, or one event that says why it wrote nothing."""
    try:
        return records_of(module, name, more, limit, children, folder=ROOT)
    except ProcessEnded as ended:
        return [ended.event(name)]


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


def begin(file: Path, command: str, names: Sequence[str], again: bool) -> None:
    """Make a file of results where there is none. again: take the models out of it that are to be measured anew.

    Its first line says when, where and with which versions, and is written anew where no result is left. Raises
    BadParameter where it would be untrue of what comes: other versions gave what the file holds.
    """
    if again and file.exists():
        forget(file, names)
    about = {"command": command, **machine()}
    held = read(file) if file.exists() else None
    if held is None or not held.records:
        write(file, [], about)
    elif held.about.get("versions") != about["versions"]:
        told = f"{file} holds what {held.about.get('versions')} gave, and this is {about['versions']}"
        raise typer.BadParameter(f"{told}: choose another file, or measure all that it holds --again")


def forget(file: Path, names: Sequence[str]) -> None:
    """Take models out of a file of results."""
    held = read(file)
    write(file, [record for record in held.records if record.model not in names], held.about)
