"""Dynamic shape: what one compilation with symbolic sizes serves, and what it costs beside static programs.

    bridge experiment dynamic_shape                        measures what is not measured yet; tables and the picture
    bridge experiment dynamic_shape -- gpt2 --again
    python -m experiments.coverage.run --dynamic-batch     the corpus with a dynamic batch dimension

Each model runs in a process of its own and is added to the file of results at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from bridge.bench.summary import geometric_mean
from bridge.demo.timing import machine
from bridge.ledger import DeadEnd, Event, Measure, Record
from bridge.ledger.jsonl import read, write
from experiments.apart import forget, measured_apart, sweep
from experiments.corpus import MODELS as REAL
from experiments.coverage.dynamic import PROGRAMS
from experiments.coverage.run import DYNAMIC as CORPUS
from experiments.coverage.step import WRONG_RESULTS
from experiments.coverage.summary import RIGHT, verdicts
from experiments.dynamic_shape.models import MODELS
from experiments.dynamic_shape.step import EAGER, INDUCTOR, STATIC, SYMBOLIC, label
from experiments.page import between

HERE = Path(__file__).parent
README = HERE / "README.md"
RESULTS = HERE / "results" / "sizes.jsonl.gz"
FIGURE = HERE / "results" / "sizes.png"
OTHERS = (STATIC, INDUCTOR, EAGER)
BEGIN, END = "<!-- made by: bridge experiment dynamic_shape -->", "<!-- end of what is made -->"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Models; all if none is named.")] = None,
    again: Annotated[bool, typer.Option(help="Measure also what the file has already.")] = False,
    rounds: Annotated[int, typer.Option(help="Readings of each time.")] = 20,
    limit: Annotated[float, typer.Option(help="Seconds that a model may take.")] = 900.0,
) -> None:
    """Train four models at many sizes with one compilation each, and time it beside static programs."""
    chosen = list(names or MODELS)
    for name in chosen:
        if name not in MODELS:
            raise typer.BadParameter(f"{name}: there is no such model")
    if not RESULTS.exists():
        write(RESULTS, [], {"command": "bridge experiment dynamic_shape", **machine()})
    if again:
        forget(RESULTS, [record.model for record in read(RESULTS).records if record.model.split()[0] in chosen])
    known = {record.model.split()[0] for record in read(RESULTS).records if record.model}
    sweep(
        [name for name in chosen if name not in known],
        lambda name, children: measured_apart(
            "experiments.dynamic_shape.step", name, ["--rounds", str(rounds)], limit, children
        ),
        lambda name, records: f"{sum(compiled_for(records, name))} programs",
        RESULTS,
        1,
        Console(),
    )
    between(README, BEGIN, END, tables())
    figure(FIGURE)


def tables() -> str:
    """What the results say, in Markdown."""
    parts = []
    if RESULTS.exists():
        records = read(RESULTS).records
        parts.append("### One compilation\n\n" + "\n".join(compilations(records)))
        parts.append("### Time of a step\n\n" + "\n".join(times(records)))
        parts.append("![time of a step](results/sizes.png)")
    if CORPUS.exists():
        parts.append("### Real models with a dynamic batch\n\n" + corpus(read(CORPUS).records))
    return "\n\n".join(parts)


def values(records: Sequence[Record], name: str, target: str, model: str) -> tuple[float, ...]:
    """A measure's readings; none where it was not taken."""
    wanted = (name, target, model)
    return next((m.values for m in records if isinstance(m, Measure) and (m.name, m.target, m.model) == wanted), ())


def compiled_for(records: Sequence[Record], name: str) -> list[int]:
    """How many programs each size of a model took, in order."""
    sizes = MODELS[name].sizes
    return [int(n) for size in sizes for n in values(records, PROGRAMS, SYMBOLIC, label(name, size))]


def compilations(records: Sequence[Record]) -> Iterator[str]:
    yield "| model | sizes | programs for the first | for all others | first step | wrong |"
    yield "|---|---|---|---|---|---|"
    for name, model in MODELS.items():
        programs = compiled_for(records, name)
        if not programs:
            continue
        at = [label(name, size) for size in model.sizes]
        wrong = sum(sum(values(records, WRONG_RESULTS, SYMBOLIC, one)) for one in at)
        shown = ", ".join(one.removeprefix(f"{name} ") for one in at)
        seconds = values(records, "first step", SYMBOLIC, at[0])[0]
        yield f"| {name} | {shown} | {programs[0]} | {sum(programs[1:])} | {seconds:.0f} s | {wrong:.0f} |"


def times(records: Sequence[Record]) -> Iterator[str]:
    """Symbolic steps as a share of the others', by the medians."""
    yield f"| at | {' | '.join(f'of {other}' for other in OTHERS)} |"
    yield "|---|---|---|---|"
    found = {other: shares(records, other) for other in OTHERS}
    for number, at in enumerate(timed_at(records)):
        yield f"| {at} | {' | '.join(f'{found[other][number]:.2f}' for other in OTHERS)} |"
    if found[STATIC]:
        yield f"| geometric mean | {' | '.join(f'{geometric_mean(found[other]):.2f}' for other in OTHERS)} |"


def shares(records: Sequence[Record], other: str) -> list[float]:
    """Symbolic steps as a share of another way's, by the medians, at each place where they were timed."""
    at = timed_at(records)
    return [median(values(records, "step", SYMBOLIC, a)) / median(values(records, "step", other, a)) for a in at]


def timed_at(records: Sequence[Record]) -> list[str]:
    """The models at the sizes at which steps were timed."""
    labels = [label(name, size) for name, model in MODELS.items() for size in model.steady]
    return [at for at in labels if values(records, "step", STATIC, at)]


@dataclass(frozen=True)
class Outcome:
    """How the models of the corpus ended.

    untouched: those right without an event of this dead end. once: of these, those that were compiled but once: what
    a step itself has changed (a flag, a buffer that is set up) or an integer is a reason to compile again too.
    """

    ended: Mapping[str, str]
    untouched: frozenset[str]
    once: frozenset[str]

    @property
    def right(self) -> list[str]:
        return [name for name, verdict in self.ended.items() if verdict == RIGHT]


def outcome(records: Sequence[Record]) -> Outcome:
    """What became of the corpus with a dynamic batch dimension."""
    ended = verdicts(records)
    met = {r.model for r in records if isinstance(r, Event) and r.dead_end is DeadEnd.DYNAMIC_SHAPE}
    untouched = frozenset(name for name, verdict in ended.items() if verdict == RIGHT and name not in met)
    once = frozenset(name for name in untouched if not any(values(records, PROGRAMS, "bridge", name)[1:]))
    return Outcome(ended, untouched, once)


def corpus(records: Sequence[Record]) -> str:
    found = outcome(records)
    wrong = ", ".join(f"{name} ({verdict})" for name, verdict in found.ended.items() if verdict != RIGHT) or "none"
    met = ", ".join(name for name in found.right if name not in found.untouched) or "none"
    again = ", ".join(name for name in found.right if name in found.untouched - found.once) or "none"
    left = ", ".join(name for name in REAL if name not in found.ended) or "none"
    return (
        f"Of {len(found.ended)} models {len(found.right)} train as in eager at two sizes of the batch, "
        f"{len(found.untouched)} of them without any event of this dead end, {len(found.once)} by one compilation.\n\n"
        f"- Not right: {wrong}.\n"
        f"- Right, and compiled again for another size or with a fallback: {met}.\n"
        f"- Compiled again, for a reason of torch's that names no size: {again}.\n"
        f"- Not measured: {left}."
    )


def figure(path: Path) -> None:
    """The time of a symbolic step as a share of a static, an Inductor and an eager one, by model and size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    records = read(RESULTS).records
    places = timed_at(records)
    made, axes = pyplot.subplots(figsize=(8, 3.4))
    for number, other in enumerate(OTHERS):
        at = [n + 0.27 * (number - 1) for n in range(len(places))]
        axes.bar(at, shares(records, other), width=0.27, label=f"of {other}")
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(places)), places)
    axes.set_ylabel("time of a symbolic step")
    axes.legend()
    made.tight_layout()
    made.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
