"""How fast a training step is through the bridge, beside eager and Inductor: steady, first cold, first warm, memory.

    python -m experiments.benchmark.run [NAMES] [--again] [--rounds 30] [--limit 900]

Each model runs in two processes of its own, the second of which finds what the first one built; within one the three
take turns. The file of results is added to at once, and what is in it is left out, so a run can be taken up again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bridge.bench.apart import bench
from bridge.bench.summary import by_target, ratio, summary
from bridge.cli.processes import Child, ProcessEnded
from bridge.ledger import Event, Record
from bridge.ledger.jsonl import read
from experiments.apart import ROOT, begin, sweep
from experiments.benchmark.models import LARGER, MODELS

RESULTS = Path(__file__).parent / "results"


def told(name: str, records: list[Record]) -> str:
    """A line on one model: the step's ratios, or why there are none."""
    of = by_target(records, "step").get(name, {})
    ratios = [f"{found[0]:.2f} of {other}" for other in ("inductor", "eager") if (found := ratio(of, other))]
    return ", ".join(ratios or [record.detail for record in records if isinstance(record, Event)])


def measured(name: str, rounds: int, limit: float, children: set[Child]) -> list[Record]:
    """What was measured of a model, or the event that says why it was not."""
    target = f"experiments.benchmark.models:{name}" if name in LARGER else name
    try:
        return bench(target, name, rounds, limit, children, ROOT)
    except ProcessEnded as ended:
        return [ended.event(name)]


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Models; all if none is named.")] = None,
    again: Annotated[bool, typer.Option(help="Time also what the file has already.")] = False,
    rounds: Annotated[int, typer.Option(help="Readings of each.")] = 30,
    limit: Annotated[float, typer.Option(help="Seconds that a model may take.")] = 900.0,
) -> None:
    """Time the corpus and the larger models."""
    chosen = list(names or MODELS)
    for name in chosen:
        if name not in MODELS:
            raise typer.BadParameter(f"{name}: there is no such model")
    console, file = Console(), RESULTS / "benchmark.jsonl.gz"
    begin(file, "python -m experiments.benchmark.run", chosen, again)
    known = {record.model for record in read(file).records}
    sweep(
        [name for name in chosen if name not in known],
        lambda name, children: measured(name, rounds, limit, children),
        told,
        file,
        1,
        console,
    )
    console.print(summary(list(read(file).records)))


if __name__ == "__main__":
    typer.run(main)
