"""What a file of trials says: how many overloads ended in which way, and what is wrong with those that did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bridge.conformance.trials import worst
from bridge.ledger import End, Trial

BAD = (End.WRONG, End.RAISED, End.CRASHED)
MOST = 40


def line(of_op: Sequence[Trial]) -> str:
    """How an overload ended: the calls by end, and the first that is bad."""
    counts = Counter({end: sum(one.calls for one in of_op if one.end is end) for end in End})
    parts = ", ".join(f"{count} {end.value}" for end, count in counts.items() if count)
    first = next((one for end in BAD for one in of_op if one.end is end), None)
    return f"{parts}; {_where(first)}: {first.detail}" if first else parts


def print_summary(tried: Mapping[str, Sequence[Trial]], importer: str, console: Console) -> None:
    """Print a line an end, and each overload that ends badly."""
    table = Table(box=box.SIMPLE_HEAD, title=f"{importer}: {len(tried)} overloads", title_justify="left")
    for heading, side in (("", "left"), ("overloads", "right"), ("calls", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    ends = Counter(worst(of_op) for of_op in tried.values())
    for end in End:
        calls = sum(one.calls for of_op in tried.values() for one in of_op if one.end is end)
        table.add_row(end.value, str(ends[end]), str(calls))
    console.print(table)
    bad = [(op, of_op) for op, of_op in tried.items() if worst(of_op) in BAD]
    if bad:
        console.print(_faults(bad[:MOST]))
    if len(bad) > MOST:
        console.print(f"and {len(bad) - MOST} more, in the file")


def _faults(bad: Sequence[tuple[str, Sequence[Trial]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="not right", title_justify="left")
    for heading in ("overload", "what became of the calls, and the first that is bad"):
        table.add_column(heading, overflow="fold")
    for op, of_op in bad:
        table.add_row(op, escape(line(of_op)))
    return table


def _where(trial: Trial) -> str:
    return " ".join(part for part in (trial.dtype, trial.variant) if part) or "process"
