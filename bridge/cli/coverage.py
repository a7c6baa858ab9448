"""`bridge coverage`: which nodes of models would run in TVM, found by dry runs."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bridge.cli.app import app, complain, console
from bridge.cli.processes import dry_runs
from bridge.cli.targets import WHOLE_CORPUS, corpus
from bridge.ledger import Placement, Record, Way
from bridge.ledger.jsonl import LedgerFile, read, write
from bridge.report.coverage import share
from bridge.report.numbers import percent
from bridge.report.report import ModelReport, Report, make_report

TARGETS = (
    "module:function, file.py:function, a .py file with make() or model and args, or names of the corpus (corpus: all)."
)


@app.command()
def coverage(
    targets: Annotated[list[str], typer.Argument(help=TARGETS)],
    out: Annotated[Path | None, typer.Option(help="Keep the ledger in this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file as one HTML page.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write the report to this file as JSON.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Compare with this ledger; 1 if it is worse.")
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Per cent: 1 if fewer of a model's nodes run in TVM or a library."),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Ask TVM's importer, Inductor and torch.onnx.")] = False,
    library: Annotated[bool, typer.Option(help="Call ATen for matrix products, convolutions and attention.")] = True,
    dynamic: Annotated[bool | None, typer.Option("--dynamic/--static", help="As dynamic=… of bridge.compile.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Models at a time.")] = 1,
    limit: Annotated[float, typer.Option(help="Seconds that a model may take.")] = 300.0,
) -> None:
    """Capture a training step of each model and tell which nodes TVM would take, and why not the others.

    Nothing is compiled. A function, or make() of a file, gives (model, args) or (model, args, kwargs, loss_fn).
    """
    names = [name for text in targets for name in (corpus() if text == WHOLE_CORPUS else [text])]
    earlier = read(baseline) if baseline is not None else None
    records, unknown = _dry_runs(list(dict.fromkeys(names)), {"library": library, "dynamic": dynamic}, jobs, limit)
    if not records:
        _end(unknown, 0)
    if peers:
        from bridge.cli.peers import ask

        with console.status("asking peers"):
            records += ask(one.op for one in records if isinstance(one, Placement))
    found = _kept(records, out)
    report = make_report(found)
    _show(report, html, as_json)
    bad = _failed(report) + _below(report, fail_under)
    if earlier is not None:
        bad += _compared(earlier, found)
    _end(unknown, bad)


def _end(unknown: Sequence[str], bad: int) -> None:
    """Exit with 2 for a target that is not there, with 1 for a result that is not wanted."""
    for problem in unknown:
        complain(problem)
    if unknown or bad:
        raise typer.Exit(2 if unknown else 1)


def _dry_runs(
    names: Sequence[str], options: dict[str, bool | None], jobs: int, limit: float
) -> tuple[list[Record], list[str]]:
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("dry runs", total=len(names))

        def done(name: str, records: Sequence[Record]) -> None:
            progress.advance(task)
            progress.update(task, description=escape(name))

        return dry_runs(names, options, jobs, limit, done)


def _kept(records: Sequence[Record], out: Path | None) -> LedgerFile:
    """The records as a file gives them back, so that every report is one of a file."""
    from bridge.demo.timing import machine

    about = {"command": shlex.join(["bridge", *sys.argv[1:]]), **machine()}
    with tempfile.TemporaryDirectory() as folder:
        path = out or Path(folder) / "ledger.jsonl"
        write(path, records, about)
        return read(path)


def _show(report: Report, html: Path | None, as_json: Path | None) -> None:
    from bridge.report.html import report_html
    from bridge.report.json import report_json
    from bridge.report.terminal import print_report

    print_report(report, console)
    for path, render in ((html, report_html), (as_json, report_json)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(render(report), encoding="utf-8")
            console.print(f"written: {path}", soft_wrap=True)


def _failed(report: Report) -> int:
    """How many models did not come through their step."""
    failed = [model for model in report.placed if model.coverage.failures]
    for model in failed:
        complain(f"{model.name}: {model.coverage.failures[0]}")
    return len(failed)


def _below(report: Report, fail_under: float | None) -> int:
    """How many models have fewer of their nodes in TVM or a library than is asked for."""
    if fail_under is None:
        return 0
    below = [model for model in report.placed if _taken(model) < fail_under]
    for model in below:
        complain(f"{model.name}: {percent(_taken(model))} of the nodes run in TVM or a library, under {fail_under:g} %")
    return len(below)


def _taken(model: ModelReport) -> float:
    return share(model.coverage.total, Way.GENERATED) + share(model.coverage.total, Way.LIBRARY)


def _compared(earlier: LedgerFile, found: LedgerFile) -> int:
    """Print what changed since the baseline, and count what is worse."""
    from bridge.report.difference import difference
    from bridge.report.overview import print_difference

    changes = difference(earlier, found)
    print_difference(changes, console)
    return len(changes.worse)
