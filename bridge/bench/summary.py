"""What was measured, as ratios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import median, quantiles

from rich import box
from rich.table import Table

from bridge.ledger import Measure, Record

JOINED = "bridge, fused joint"
"""The bridge with forward and backward as one program."""

COLUMNS = (
    ("step", "step", "bridge", "inductor"),
    ("step", "step", "bridge", "eager"),
    ("step", "joined", JOINED, "inductor"),
    ("first step", "cold", "bridge", "inductor"),
    ("first step, warm", "warm", "bridge", "inductor"),
    ("peak memory", "memory", "bridge", "inductor"),
    ("peak memory", "joined", JOINED, "inductor"),
)
"""What is measured, the head of its column, whose, and against whom."""

Ratio = tuple[float, float]
"""The bridge's median over another's, and how far the middle half of the readings spreads, of their median."""


def by_target(records: Iterable[Record], name: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """The readings of a measure, by model and target."""
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for record in records:
        if isinstance(record, Measure) and record.name == name:
            found.setdefault(record.model, {})[record.target] = record.values
    return found


def ratio(of: Mapping[str, tuple[float, ...]], other: str, mine: str = "bridge") -> Ratio | None:
    """The bridge against another target. None where one of them was not measured."""
    if mine not in of or other not in of:
        return None
    return median(of[mine]) / median(of[other]), max(_spread(of[mine]), _spread(of[other]))


def geometric_mean(values: Iterable[float]) -> float:
    """Raises ZeroDivisionError for no values."""
    logarithms = [log(value) for value in values]
    return exp(sum(logarithms) / len(logarithms))


def summary(records: Sequence[Record]) -> Table:
    """The bridge against Inductor and eager, a model a row and their geometric mean below; under 1 is better."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="the bridge's share of …")
    table.add_column("model", overflow="fold", min_width=12)
    cells: dict[str, list[str]] = {}
    means: list[str] = []
    for name, head, mine, other in COLUMNS:
        table.add_column(f"{head}\n{other}", justify="right", no_wrap=True)
        found = {model: ratio(of, other, mine) for model, of in by_target(records, name).items()}
        for model in by_target(records, "step"):
            cells.setdefault(model, []).append(_cell(found.get(model)))
        ratios = [one[0] for one in found.values() if one is not None]
        means.append(f"{geometric_mean(ratios):.2f}" if ratios else "–")
    for model, row in cells.items():
        table.add_row(model, *row)
    if len(cells) > 1:
        table.add_section()
        table.add_row("geometric mean", *means)
    return table


def _cell(found: Ratio | None) -> str:
    if found is None:
        return "–"
    share, spread = found
    return f"{share:.2f} ± {share * spread:.2f}" if spread else f"{share:.2f}"


def _spread(values: tuple[float, ...]) -> float:
    if len(values) < 4:
        return 0.0
    low, middle, high = quantiles(values, n=4)
    return (high - low) / 2 / middle
