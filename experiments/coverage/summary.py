"""What the file of results says: a line a model, and what stood in the way, by the number of models that it touches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bridge.cli.processes import RAISED, TIMED_OUT
from bridge.ledger import Event, Measure, Placement, Record, Way
from experiments.coverage.step import (
    BRIDGE,
    EAGER,
    ROUNDED,
    UNCAPTURED_CALL,
    UNCAPTURED_CALLS,
    WRONG,
    WRONG_RESULTS,
)

RIGHT = "right"
IDLE = (
    "aten._assert_async.msg",
    "aten._assert_async.default",
    "aten._assert_scalar.default",
    "aten._linalg_check_errors.default",
    "aten._local_scalar_dense.default",
)
"""Ops that compute nothing: checks, and what gives a number in a tensor to Python."""
NO_CAUSE = ("copied back", "version", WRONG, UNCAPTURED_CALL)
"""Kinds of events that send no node elsewhere, or that another event explains."""


@dataclass(frozen=True)
class Line:
    """One model. verdict: right, wrong, raised or timed out; detail: in what.

    errors: of the gradients, in eager and through the bridge. rounded: results that are as far off as eager's own with
    the last bits of the weights changed. outside: calls that the audit found outside of every program. called: nodes
    that are called from a library, those that draw random numbers or only check not counted.
    """

    name: str
    verdict: str
    detail: str
    ways: dict[Way, int]
    uncaptured: int
    seconds: float
    errors: tuple[float, float]
    rounded: int
    outside: int
    called: int

    @property
    def whole(self) -> bool:
        """Whether the step is right, and nothing of it fell back or was left out of the graphs."""
        return self.verdict == RIGHT and not self.ways[Way.FALLBACK] and not self.uncaptured

    @property
    def generated(self) -> bool:
        """Whether the step is right, and kernels of ours compute every node that a graph holds."""
        return self.verdict == RIGHT and not self.ways[Way.FALLBACK] and not self.called


def verdicts(records: Iterable[Record]) -> dict[str, str]:
    """What became of each model of which the records tell the end."""
    found: dict[str, str] = {}
    for record in records:
        if isinstance(record, Event) and record.kind in (RAISED, TIMED_OUT):
            found[record.model] = record.kind
        if isinstance(record, Measure) and record.name == WRONG_RESULTS:
            found[record.model] = RIGHT if record.values == (0.0,) else "wrong"
    return found


def lines(records: Sequence[Record], names: Iterable[str]) -> list[Line]:
    """The models of which the file tells the end, in the order of the names."""
    ended = verdicts(records)
    by_model: dict[str, list[Record]] = {}
    for record in records:
        by_model.setdefault(record.model, []).append(record)
    return [_line(name, ended[name], by_model[name]) for name in names if name in ended]


def _line(name: str, verdict: str, records: Sequence[Record]) -> Line:
    ways: Counter[Way] = Counter()
    placements = [record for record in records if isinstance(record, Placement)]
    for placement in placements:
        ways[placement.way] += placement.nodes
    measures = {(m.name, m.target): m.values[0] for m in records if isinstance(m, Measure)}
    events = [event for event in records if isinstance(event, Event)]
    uncaptured = sum(event.count for event in events if event.kind in (UNCAPTURED_CALL, "uncaptured"))
    return Line(
        name,
        verdict,
        _detail(events),
        {way: ways[way] for way in Way},
        uncaptured,
        measures.get(("first step", BRIDGE), 0.0),
        (measures.get(("gradient error", EAGER), 0.0), measures.get(("gradient error", BRIDGE), 0.0)),
        int(measures.get((ROUNDED, BRIDGE), 0.0)),
        int(measures.get((UNCAPTURED_CALLS, BRIDGE), 0.0)),
        sum(p.nodes for p in placements if p.way is Way.LIBRARY and not (draws(p.op) or p.op in IDLE)),
    )


def draws(op: str) -> bool:
    """Whether an overload, by name, draws random numbers."""
    packet, _, overload = op.removeprefix("aten.").partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    return torch.Tag.nondeterministic_seeded in getattr(found, "tags", ())


def _detail(events: Iterable[Event]) -> str:
    """How many of each are wrong and the first of them, or what was raised."""
    told = [event for event in events if event.kind in (WRONG, RAISED, TIMED_OUT)]
    counts = Counter(event.op for event in told)
    if len(told) <= 1:
        return "".join(f"{event.op} {event.detail}" for event in told)
    return ", ".join(f"{count} {what}" for what, count in counts.items()) + f"; {told[0].op} {told[0].detail}"


def print_summary(records: Sequence[Record], console: Console, names: Iterable[str]) -> None:
    """Print the models, then what stood in the way."""
    found = lines(records, names)
    shown = {line.name for line in found}
    console.print(models_table(found))
    console.print(causes_table(event for event in records if isinstance(event, Event) and event.model in shown))
    right, whole = sum(line.verdict == RIGHT for line in found), sum(line.whole for line in found)
    console.print(f"{len(found)} models: {right} right, {whole} of them with no fallback and nothing uncaptured")
    generated = [line for line in found if line.generated]
    alone = sum(not line.outside for line in generated)
    console.print(
        f"{len(generated)} right with every node generated that does not draw; of {alone} nothing ran outside of graphs"
    )


def models_table(found: Iterable[Line]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Models", title_justify="left")
    table.add_column("model")
    table.add_column("step")
    for heading in (
        "generated",
        "library",
        "fallback",
        "uncaptured",
        "first step",
        "eager's error",
        "error",
        "rounded",
    ):
        table.add_column(heading, justify="right")
    table.add_column("in what", overflow="fold")
    for line in found:
        counts = [str(line.ways[way]) for way in (Way.GENERATED, Way.LIBRARY, Way.FALLBACK)] + [str(line.uncaptured)]
        errors = [f"{error:.1e}" for error in line.errors] + [str(line.rounded or "")]
        style = None if line.whole else "yellow" if line.verdict == RIGHT else "red"
        cells = [line.verdict, *counts, f"{line.seconds:.1f} s", *errors, escape(line.detail)]
        table.add_row(line.name, *cells, style=style)
    return table


def causes_table(events: Iterable[Event]) -> Table:
    """Events by kind, op and reason, that of most models first."""
    models: dict[tuple[str, str, str], Counter[str]] = {}
    for event in events:
        if event.kind not in NO_CAUSE:
            models.setdefault((event.kind, event.op, event.detail), Counter())[event.model] += event.count
    table = Table(box=box.SIMPLE_HEAD, title="What stood in the way", title_justify="left")
    table.add_column("models", justify="right")
    table.add_column("times", justify="right")
    for heading in ("kind", "op", "reason", "for instance"):
        table.add_column(heading, overflow="fold")
    for cause, counts in sorted(models.items(), key=lambda item: (-len(item[1]), -item[1].total(), item[0])):
        table.add_row(
            str(len(counts)), str(counts.total()), *(escape(part) for part in cause), counts.most_common(1)[0][0]
        )
    return table
