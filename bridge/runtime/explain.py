"""`compiled.explain()`: one compilation as two tables on the terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bridge.ir.compiled import Way
from bridge.ledger import Event

if TYPE_CHECKING:
    from bridge.runtime.compiled import Compilation

Reason = tuple[str, str, str, str, str]
"""Dead end, op, reason, who took it, the user's line."""


def explain(compilation: Compilation, console: Console | None = None) -> None:
    """Print the placement and the events, equal events as one row with their number."""
    console = console or Console()
    console.print(placement_table(compilation))
    if len(compilation.ledger):
        console.print(reasons_table(compilation))
    else:
        console.print("No dead end was met.")
    if compilation.tuned:
        console.print(tuned_table(compilation))


def placement_table(compilation: Compilation) -> Table:
    """Nodes by phase and way."""
    table = Table(box=box.SIMPLE_HEAD, title="How the nodes run", title_justify="left")
    table.add_column("phase")
    for way in Way:
        table.add_column(way.value, justify="right")
    for phase, counts in compilation.placement.items():
        table.add_row(phase, *(str(counts[way.value]) for way in Way))
    if not compilation.placement:
        table.caption = "nothing was compiled yet: call it once"
    return table


def reasons_table(compilation: Compilation) -> Table:
    """Events by dead end, op, reason and line, the most frequent first."""
    counts: Counter[Reason] = Counter()
    for event in compilation.ledger:
        counts[_reason(event)] += event.count
    table = Table(box=box.SIMPLE_HEAD, title="What did not, and why", title_justify="left")
    table.add_column("times", justify="right")
    for heading in ("dead end", "op", "reason", "taken by", "asked for by"):
        table.add_column(heading, overflow="fold")
    for reason, count in counts.most_common():
        table.add_row(str(count), *(escape(text) for text in reason))
    return table


def tuned_table(compilation: Compilation) -> Table:
    """What searches for schedules came to, the kernels in which most time is spent first."""
    table = Table(box=box.SIMPLE_HEAD, title="What a search for schedules found", title_justify="left")
    for heading in ("kernel", "by rules", "found", "as quick", "tried", "called"):
        table.add_column(heading, overflow="fold", justify="left" if heading in ("kernel", "called") else "right")
    for one in sorted(compilation.tuned, key=lambda one: one.ours * one.calls, reverse=True):
        called = f"what was found by {one.by}" if one.chosen else f"by rules: {one.why}" if one.why else "by rules"
        ours, found = (f"{1e6 * seconds:.1f} µs" if seconds else "" for seconds in (one.ours, one.found))
        ratio = f"{one.ratio:.2f} times" if one.found else ""
        table.add_row(one.kernel, ours, found, ratio, str(one.trials or ""), escape(called))
    return table


def _reason(event: Event) -> Reason:
    detail = f"{event.kind}: {event.detail}" if event.kind else event.detail
    return event.dead_end.value.replace("_", " "), event.subject, detail, event.backend, event.source
