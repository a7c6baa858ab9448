"""How fast a training step is through the bridge, beside eager and Inductor: steady, compiled cold, and in memory.

    python -m experiments.benchmark.run [NAMES] [--again] [--rounds 30] [--limit 900]

Each model runs in a process of its own; within it the three take turns. The file of results is added to at once, and
what is in it is left out, so the run can be stopped and taken up.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bridge.demo.timing import machine
from bridge.ledger import Event, Record
from bridge.ledger.jsonl import read, write
from experiments.apart import forget, measured_apart, sweep
from experiments.benchmark.models import MODELS

RESULTS = Path(__file__).parent / "results"
MEASURED = {"step": 1e3, "first step": 1.0, "peak memory": 1e-6}
"""What is shown of a model, and by what it is multiplied for that: milliseconds, seconds, megabytes."""


def medians(records: list[Record], name: str) -> dict[str, dict[str, float]]:
    """The median of a measure, by model and target."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        if getattr(record, "values", None) and getattr(record, "name", "") == name:
            found.setdefault(record.model, {})[record.target] = median(record.values)  # type: ignore[union-attr]
    return found


def told(name: str, records: list[Record]) -> str:
    """A line on one model: the step's ratios, or why there are none."""
    step = medians(records, "step").get(name)
    if step is None:
        return "".join(record.detail for record in records if isinstance(record, Event)) or "no step was timed"
    return f"{step['bridge'] / step['inductor']:.2f} of Inductor, {step['bridge'] / step['eager']:.2f} of eager"


def print_summary(records: list[Record], console: Console) -> None:
    """The bridge against the other two, model by model."""
    table = Table("model", box=box.SIMPLE_HEAD)
    for name in MEASURED:
        table.add_column(f"{name}, of Inductor", justify="right")
        table.add_column("of eager", justify="right")
    by_name = {name: medians(records, name) for name in MEASURED}
    for model in by_name["step"]:
        cells = []
        for name in MEASURED:
            of = by_name[name].get(model, {})
            ratios = (of["bridge"] / of[o] if of.get(o) and "bridge" in of else None for o in ("inductor", "eager"))
            cells += ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        table.add_row(model, *cells)
    console.print(table)


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
    console, file = Console(), RESULTS / "benchmark.jsonl"
    if not file.exists():
        write(file, [], {"command": "python -m experiments.benchmark.run", **machine()})
    if again:
        forget(file, chosen)
    known = {record.model for record in read(file).records}
    sweep(
        [name for name in chosen if name not in known],
        lambda name, kids: measured_apart("experiments.benchmark.step", name, ["--rounds", str(rounds)], limit, kids),
        told,
        file,
        1,
        console,
    )
    print_summary(list(read(file).records), console)


if __name__ == "__main__":
    typer.run(main)
