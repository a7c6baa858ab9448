"""Which entries of torch's OpInfo database the bridge computes as eager does, forward and backward, and how.

    python -m experiments.conformance.run [NAMES] [--dtype float32] [--samples 3] [--symbolic] [--again] [--jobs 1]
    python -m experiments.conformance.run --modules
    python -m experiments.conformance.run --summary

What is found of an entry is added to the file of results at once, and an entry that is there already is left out, so
the run can be stopped and taken up. An entry that ends or holds up the process it runs in costs itself alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from bridge.conformance.pool import in_workers
from bridge.errors import WorkerFailure
from bridge.ledger import DeadEnd, Event, Record
from bridge.ledger.jsonl import append, read
from bridge.runtime.worker import Worker
from experiments.apart import begin
from experiments.conformance.entry import CRASHED, KEPT_DETAIL
from experiments.conformance.modules import module_names
from experiments.conformance.samples import names as supported
from experiments.conformance.summary import print_summary, verdicts

RESULTS = Path(__file__).parent / "results"


def measured(worker: Worker, name: str, dtype: str, samples: int, symbolic: bool, limit: float) -> list[Record]:
    """The records of one entry, or what became of the process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.jsonl"
        asked = {"name": name, "dtype": dtype, "samples": samples, "symbolic": symbolic, "file": str(file)}
        try:
            worker.call(asked, limit)
        except WorkerFailure as failure:
            last = " ".join(failure.detail.split())[-KEPT_DETAIL:]
            return [Event(DeadEnd.MAINTENANCE, "process", f"{failure.kind}: {last}", CRASHED, model=name)]
        return list(read(file).records)


def sweep(
    names: Sequence[str],
    file: Path,
    dtype: str,
    samples: int,
    symbolic: bool,
    jobs: int,
    limit: float,
    served: str = "experiments.conformance.serve",
) -> Iterable[tuple[str, str]]:
    """Measure the entries, so many at a time; each with its verdict when it is in the file."""

    def ask(worker: Worker, name: str) -> list[Record]:
        return measured(worker, name, dtype, samples, symbolic, limit)

    for name, records in in_workers(names, ask, served, jobs):
        append(file, records)
        yield name, verdicts(records)[name].line


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Entries by name; all if none is named.")] = None,
    dtype: Annotated[str, typer.Option(help="The type of the samples: float32, bfloat16, float64, …")] = "float32",
    samples: Annotated[int, typer.Option(help="Samples of an entry, and one of them strided and offset.")] = 3,
    symbolic: Annotated[bool, typer.Option(help="Compile for sizes that are symbols.")] = False,
    modules: Annotated[bool, typer.Option("--modules", help="The modules of ModuleInfo instead.")] = False,
    again: Annotated[bool, typer.Option(help="Measure also what the file has already.")] = False,
    jobs: Annotated[int, typer.Option(help="Entries at a time.")] = 1,
    limit: Annotated[float, typer.Option(help="Seconds that an entry may take.")] = 240.0,
    summary: Annotated[bool, typer.Option("--summary", help="Only print what the file says.")] = False,
    file: Annotated[Path | None, typer.Option(help="The file of results.")] = None,
) -> None:
    """Compare entries of the OpInfo or the ModuleInfo database with eager and tell how they ran."""
    known = (module_names if modules else supported)(getattr(torch, dtype))
    chosen = list(names or known)
    for name in chosen:
        if name not in known:
            raise typer.BadParameter(f"{name}: torch has no such entry with {dtype} on a CPU")
    kind = ("moduleinfo" if modules else "opinfo") + ("_symbolic" if symbolic else "")
    file = file or RESULTS / f"{kind}_{dtype}.jsonl.gz"
    console = Console()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not summary:
        more = " --modules" * modules + " --symbolic" * symbolic
        begin(file, f"python -m experiments.conformance.run --dtype {dtype} --samples {samples}{more}", chosen, again)
        left = [name for name in chosen if name not in verdicts(read(file).records)]
        for number, (name, line) in enumerate(sweep(left, file, dtype, samples, symbolic, jobs, limit), start=1):
            console.print(f"{number}/{len(left)} {name}: {line}", markup=False, highlight=False, soft_wrap=True)
    print_summary(read(file).records, console, chosen, dtype)


if __name__ == "__main__":
    typer.run(main)
