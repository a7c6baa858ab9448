"""`bridge ops`: every overload that TVM or Triton takes, what its row refuses, and what calls of it were tried."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from bridge.cli.app import app, console
from bridge.conformance.kept import ROWS, tried
from bridge.ledger import End, Trial

IMPORTER = "bridge"

TABLES = {"tvm": "bridge.backends.tvm.table", "triton": "bridge.backends.triton.table"}

WIDE = 140
"""Columns of a terminal on which the longest name of an overload leaves room for the rest."""


@dataclass(frozen=True)
class Row:
    """What is to be told of an overload.

    family, row: the file and the function that convert it. symbolic: whether symbolic sizes are taken.
    refuses: arguments that have to keep their defaults, and the rule by which the row refuses more, in its own words.
    dtypes: the types in which calls were tried and all right. refused: the types in which all calls were refused.
    samples: the calls that were tried and right, variants with them. wrong: those that were not right.
    """

    op: str
    family: str
    row: str
    symbolic: bool
    refuses: tuple[str, ...]
    dtypes: tuple[str, ...]
    refused: tuple[str, ...]
    samples: int
    wrong: int


@app.command()
def ops(
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
    trials: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="What bridge conform found, if not the file kept here.")
    ] = ROWS,
    backend: Annotated[str, typer.Option(help="tvm; or triton, whose kernels are for a GPU.")] = "tvm",
) -> None:
    """List every ATen overload that TVM takes: its family, types and tried samples, and what its row refuses."""
    if backend not in TABLES:
        raise typer.BadParameter(f"{backend!r} has no table; there are {', '.join(TABLES)}", param_hint="--backend")
    from bridge.backends.tvm.table import awaited, missing
    from bridge.ledger.jsonl import read

    listed = rows(tried(trials, IMPORTER) if backend == "tvm" else {}, backend)
    if as_json:
        print(json.dumps([asdict(row) for row in listed], indent=1))
        return
    console.print(_table(listed))
    about = read(trials).about
    known = [row for row in listed if row.samples or row.wrong]
    console.print(f"{len(listed)} overloads")
    if backend != "tvm":
        return
    console.print(
        f"{len(known)} of them tried {about.get('time', '')} with {about.get('versions', '')}", soft_wrap=True
    )
    if awaited:
        console.print(f"with a row, once their library is imported: {' '.join(awaited)}", soft_wrap=True)
    if missing:
        console.print(f"with a row, but not in this torch: {', '.join(missing)}")


def rows(found: Mapping[str, Sequence[Trial]], backend: str = "tvm") -> list[Row]:
    """The rows of a backend's table by name, with what was found of each."""
    from bridge.ir.rows import NEUTRAL
    from bridge.ir.schema import defaults

    listed = []
    table = importlib.import_module(TABLES[backend]).table()
    for row in sorted(table.values(), key=lambda row: str(row.op)):
        unnamed = [name for name in defaults(row.op) if name not in row.parameters and name not in NEUTRAL]
        rule = [row.refuses.__name__.replace("_", " ")] if row.refuses is not None else []
        _, family, function = row.place.rsplit(".", 2)
        refuses = (*(f"{name}=" for name in unnamed), *rule)
        listed.append(Row(str(row.op), family, function, row.symbolic, refuses, *of_trials(found.get(str(row.op), ()))))
    return listed


def of_trials(of_op: Sequence[Trial]) -> tuple[tuple[str, ...], tuple[str, ...], int, int]:
    """The types that are right, those that are refused, and how many calls were right and how many were not."""
    ends: dict[str, set[End]] = {}
    for trial in of_op:
        ends.setdefault(trial.dtype, set()).add(trial.end)
    right = tuple(name for name, met in ends.items() if End.RIGHT in met and met <= {End.RIGHT, End.REFUSED})
    refused = tuple(name for name, met in ends.items() if name and met == {End.REFUSED})
    samples = sum(trial.calls for trial in of_op if trial.end is End.RIGHT)
    wrong = sum(trial.calls for trial in of_op if trial.end not in (End.RIGHT, End.REFUSED))
    return right, refused, samples, wrong


def _table(listed: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("op", no_wrap=console.width >= WIDE, overflow="fold")
    for heading in ("family", "types", "symbolic", "samples", "refuses"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "samples" else "left")
    for row in listed:
        wrong = f", [red]{row.wrong} not right[/]" if row.wrong else ""
        samples = f"{row.samples}{wrong}" if row.samples or row.wrong else "–"
        refuses = ", ".join([*row.refuses, *row.refused])
        dtypes = " ".join(_short(name) for name in row.dtypes)
        table.add_row(row.op, row.family, dtypes, "yes" if row.symbolic else "no", samples, escape(refuses))
    return table


def _short(name: str) -> str:
    """As torch's users write it: f32, bf16, i64, u8."""
    letters = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
    stem = name.rstrip("0123456789")
    return f"{letters[stem]}{name[len(stem) :]}" if stem in letters else name
