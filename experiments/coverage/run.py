"""Which models of the corpus train through the bridge as they do in eager, and what of them ran elsewhere.

    python -m experiments.coverage.run [NAMES] [--no-library] [--dynamic-batch] [--again] [--jobs 1] [--limit 300]

Each model runs in a process of its own, on one thread unless OMP_NUM_THREADS says otherwise. What is found is added to
the file of results at once, and a model that is there already is left out, so the run can be stopped and taken up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bridge.ledger.jsonl import read
from experiments.apart import begin, measured_apart, sweep
from experiments.corpus import MODELS, SKIPPED
from experiments.coverage.summary import print_summary, verdicts

RESULTS = Path(__file__).parent / "results"
DYNAMIC = Path(__file__).parents[1] / "dynamic_shape" / "results" / "corpus.jsonl.gz"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Models of the corpus; all if none is named.")] = None,
    library: Annotated[bool, typer.Option(help="Call ATen for matrix products, convolutions and attention.")] = True,
    dynamic_batch: Annotated[bool, typer.Option(help="Mark the batch as dynamic and take steps at two sizes.")] = False,
    again: Annotated[bool, typer.Option(help="Measure also what the file has already.")] = False,
    jobs: Annotated[int, typer.Option(help="Models at a time.")] = 1,
    limit: Annotated[float, typer.Option(help="Seconds that a model may take.")] = 300.0,
    file: Annotated[Path | None, typer.Option(help="The file of results.")] = None,
    device: Annotated[str, typer.Option(help="Where the models are, cpu or cuda.")] = "cpu",
) -> None:
    """Train a step of each model of the corpus and tell what is wrong, what fell back and what was not captured."""
    chosen = list(names or MODELS)
    for name in chosen:
        if name not in MODELS:
            reason = SKIPPED.get(name, "the corpus has no such model")
            raise typer.BadParameter(f"{name}: {reason}")
    console = Console()
    file = file or (DYNAMIC if dynamic_batch else RESULTS / f"corpus{'' if library else '_generated'}.jsonl.gz")
    measure = f"experiments.coverage.{'dynamic' if dynamic_batch else 'step'}"
    more = [*([] if library else ["--no-library"]), *([] if device == "cpu" else ["--device", device])]
    command = ["python -m experiments.coverage.run", *(["--dynamic-batch"] if dynamic_batch else []), *more]
    begin(file, " ".join(command), chosen, again)
    known = verdicts(read(file).records)
    sweep(
        [name for name in chosen if name not in known],
        lambda name, children: measured_apart(measure, name, more, limit, children),
        lambda name, records: verdicts(records)[name],
        file,
        jobs,
        console,
    )
    print_summary(read(file).records, console, chosen)


if __name__ == "__main__":
    typer.run(main)
