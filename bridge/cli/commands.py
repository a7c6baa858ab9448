"""The commands that show: `bridge demo`, `report`, `cache`, `doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from bridge.cli.app import app, complain, console

if TYPE_CHECKING:
    from bridge.doctor import Check


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for ledger.jsonl, report.html and losses.png.")] = Path("out"),
    target: Annotated[str, typer.Option(help="Target that is compared with eager.")] = "tvm",
    task: Annotated[list[str] | None, typer.Option(help="Train only this: digits or text.")] = None,
) -> None:
    """Train a digit classifier and a small GPT-2 through eager and through the bridge, side by side."""
    _need("sklearn", "transformers", "matplotlib")
    from bridge.demo.run import TASKS, run_demo
    from bridge.report.terminal import print_report

    unknown = [name for name in task or () if name not in TASKS]
    if unknown:
        raise typer.BadParameter(f"no task {unknown[0]!r}; there are {', '.join(TASKS)}", param_hint="--task")
    report = run_demo(out, console, target, task or tuple(TASKS))
    print_report(report, console)
    console.print(f"\nwritten: {out / 'ledger.jsonl'}, {out / 'report.html'}, {out / 'losses.png'}")


@app.command()
def report(
    file: Annotated[
        Path,
        typer.Argument(help="A ledger that a command of ours wrote.", exists=True, dir_okay=False),
    ],
    html: Annotated[Path | None, typer.Option(help="Write the report to this file as one HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    repros: Annotated[Path | None, typer.Option(help="Write a program for each fallback to this folder.")] = None,
) -> None:
    """Show what a ledger file tells: how nodes ran, which dead ends were met, what was measured."""
    from bridge.ledger.jsonl import read
    from bridge.report.report import make_report

    held = read(file)
    content = make_report(held)
    if repros is not None:
        from bridge.report.repro import write_repros

        for path in write_repros(held.events, repros):
            console.print(f"written: {path}", soft_wrap=True)
    elif html is not None:
        from bridge.report.html import report_html

        html.write_text(report_html(content), encoding="utf-8")
        console.print(f"written: {html}")
    elif as_json:
        from bridge.report.json import report_json

        print(report_json(content))
    else:
        from bridge.report.terminal import print_report

        print_report(content, console)


@app.command()
def cache(clear: Annotated[bool, typer.Option("--clear", help="Remove what it holds.")] = False) -> None:
    """Show where built programs are kept and how much room they take, or remove them."""
    from bridge.runtime.cache import users_cache

    held = users_cache()
    usage = held.usage()
    console.print(f"{usage.root}: {usage.entries} programs, {usage.bytes / 1e6:.1f} MB", soft_wrap=True)
    if clear:
        held.clear()
        console.print("removed")


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False) -> None:
    """Look at versions, tools, torch's and TVM's private names and each way of running; say what to do where needed."""
    from bridge.doctor import State, examine

    checks: list[Check] = []
    for check in examine():
        if not as_json:
            _print_check(check, is_first=not checks or checks[-1].group != check.group)
        checks.append(check)
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    if any(check.state is State.WRONG for check in checks):
        raise typer.Exit(1)


def _print_check(check: Check, is_first: bool) -> None:
    if is_first:
        console.print(f"\n[bold]{check.group}[/]")
    colour = {"ok": "green", "note": "yellow", "wrong": "red"}[check.state]
    text = f"  [{colour}]{check.state:<5}[/] {escape(check.name)}: {escape(check.detail)}"
    console.print(text, soft_wrap=True, highlight=False)
    if check.remedy:
        console.print(f"        → {escape(check.remedy)}", soft_wrap=True, highlight=False)


def _need(*modules: str) -> None:
    """Stop with the next step to take if a package of the [demo] extra is not there."""
    from importlib.util import find_spec

    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        complain(f"{', '.join(absent)} not installed; run: pip install 'torch-tvm-bridge[demo]'")
        raise SystemExit(1)
