"""`bridge bench`: how fast training steps of models are, beside eager and Inductor."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.app import app, complain, console
from bridge.cli.coverage import TARGETS
from bridge.cli.processes import ProcessEnded
from bridge.cli.targets import NOT_THERE, WHOLE_CORPUS, corpus
from bridge.ledger import Record


@app.command()
def bench(
    targets: Annotated[list[str], typer.Argument(help=TARGETS)],
    out: Annotated[Path | None, typer.Option(help="Keep the measures in this file.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Readings of each.")] = 30,
    limit: Annotated[float, typer.Option(help="Seconds that a model may take.")] = 900.0,
) -> None:
    """Time training steps through the bridge, Inductor and eager, which take turns in one process a model.

    Steady steps, the first step with empty caches and with full ones, and the peak of memory are told as the bridge's
    share of the others' medians, with half the spread of the middle half of the readings.
    """
    from bridge.bench.apart import bench as measured
    from bridge.bench.summary import summary
    from bridge.demo.timing import machine
    from bridge.ledger.jsonl import write

    records: list[Record] = []
    codes = {0}
    for name in [name for text in targets for name in (corpus() if text == WHOLE_CORPUS else [text])]:
        with console.status(f"timing {name}"):
            try:
                records += measured(name, name, rounds, limit, set())
            except ProcessEnded as ended:
                complain(str(ended) if ended.code == NOT_THERE else f"{name}: {ended}")
                codes.add(2 if ended.code == NOT_THERE else 1)
    if records:
        console.print(summary(records))
    if out is not None:
        write(out, records, {"command": shlex.join(["bridge", *sys.argv[1:]]), **machine()})
        console.print(f"written: {out}", soft_wrap=True)
    if max(codes):
        raise typer.Exit(max(codes))
