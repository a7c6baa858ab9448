"""On the terminal: quantities by phase, all models at a glance, what to do next, peers, and a difference."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import shorten

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bridge.ledger import Way
from bridge.report.amounts import UNITS, Cell, Quantity
from bridge.report.coverage import Coverage, share
from bridge.report.difference import Change, Difference
from bridge.report.numbers import amount, percent
from bridge.report.peers import Peer
from bridge.report.report import Report

WAY_STYLES = {Way.GENERATED: "green", Way.LIBRARY: "cyan", Way.FALLBACK: "yellow", Way.UNCAPTURED: "red"}
MOST_STEPS = 12
MOST_MISSING = 6


def amounts_table(coverage: Coverage) -> Table:
    """Every quantity of which anything is known, in every phase: how much in each way, with its share of that."""
    table = Table(box=box.SIMPLE_HEAD, title="how it ran", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("phase")
    for way in Way:
        table.add_column(way.value, justify="right", style=WAY_STYLES[way])
    known = {q: cells for q, cells in coverage.amounts.items() if any(cell.known for cell in cells.values())}
    some_unknown = any(cell.unknown for cells in known.values() for cell in cells.values())
    if some_unknown:
        table.add_column("not known", justify="right")
    for quantity, cells in known.items():
        shown = cells if len(cells) > 2 else dict(list(cells.items())[:1])
        for position, (phase, cell) in enumerate(shown.items()):
            last = position == len(shown) - 1
            unknown = [f"{cell.unknown} nodes" if cell.unknown else ""] if some_unknown else []
            ways = [way_text(cell, way, quantity) for way in Way]
            table.add_row("" if position else quantity.value, phase, *ways, *unknown, end_section=last)
    return table


def way_text(cell: Cell, way: Way, quantity: Quantity) -> str:
    """What ran in one way: the number, and its share."""
    value = amount(cell.ways[way], UNITS.get(quantity, ""))
    return f"{value} {percent(cell.share(way)):>7}" if cell.ways[way] else value


def print_overview(report: Report, console: Console) -> None:
    """Print all models of a file together."""
    console.rule(f"[bold]{len(report.placed)} models")
    console.print(models_table(report))
    console.print(amounts_table(report.together))


def print_next(report: Report, console: Console) -> None:
    """Print which models nothing is lacking to, what would bring the others there, and what others have."""
    if len(report.placed) > 1:
        console.print(
            f"[bold]{len(report.whole)}[/] of {len(report.placed)} models run with no fallback and nothing uncaptured; "
            f"{len(report.blocked)} are held up by more than ops"
        )
    if report.steps:
        console.print(steps_table(report))
    if report.peers:
        console.print(peers_table(report.peers))


def models_table(report: Report) -> Table:
    """A row for each model, by nodes."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("model", overflow="fold", min_width=8)
    for way in Way:
        table.add_column(way.value, justify="right", style=WAY_STYLES[way], overflow="fold")
    table.add_column("lacking", overflow="fold", min_width=12)
    for model in report.placed:
        coverage = model.coverage
        lacking = ", ".join(sorted(coverage.lacking))
        why = "; ".join(part for part in (shorten(coverage.blocked, 80, placeholder="…"), lacking) if part)
        numbers = [_nodes(coverage, way) for way in Way]
        table.add_row(escape(model.name or "model"), *numbers, escape(why))
    return table


def _nodes(coverage: Coverage, way: Way) -> str:
    nodes = coverage.total[way]
    return f"{nodes} {percent(share(coverage.total, way)):>7}" if nodes else "0"


def steps_table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="write these ops next", title_justify="left", title_style="bold")
    for heading in ("ops", "models"):
        table.add_column(heading, justify="right")
    table.add_column("with")
    table.add_column("run whole with these", overflow="fold")
    for step in report.steps[:MOST_STEPS]:
        whole = f"+{len(step.models)} → {len(report.whole) + step.all_models}"
        table.add_row(str(step.all_ops), whole, escape(", ".join(step.ops)), escape(", ".join(step.models)))
    left = len(report.steps) - MOST_STEPS
    table.caption = f"and {left} more steps, in the HTML page" if left > 0 else None
    return table


def peers_table(found: Iterable[Peer]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="others, by name", title_justify="left", title_style="bold")
    table.add_column("who", overflow="fold")
    for heading in ("distinct ops", "nodes"):
        table.add_column(heading, justify="right")
    table.add_column("has not, most nodes first", overflow="fold")
    for peer in found:
        if not peer.asked:
            table.add_row(escape(peer.name), "–", "–", escape(f"absent: {peer.detail}"))
            continue
        missing = ", ".join(f"{op} {nodes}" for op, nodes in peer.missing[:MOST_MISSING])
        more = len(peer.missing) - MOST_MISSING
        missing += f", and {more} more" if more > 0 else ""
        counts = [
            f"{part} of {whole} {percent(100 * part / whole if whole else 0):>7}"
            for part, whole in ((peer.ops, peer.all_ops), (peer.nodes, peer.all_nodes))
        ]
        table.add_row(f"{escape(peer.name)}\n[dim]{escape(peer.detail)}[/]", *counts, escape(missing))
    return table


def print_difference(found: Difference, console: Console) -> None:
    """Print what is worse than in the earlier file, and what is better."""
    for title, changes, style in (("worse", found.worse, "red"), ("better", found.better, "green")):
        for change in changes:
            console.print(Text(f"{title}: {_change(change)}", style=style), soft_wrap=True)
    if not found.worse and not found.better:
        console.print("no difference from the baseline")
    for title, models in (("not in the baseline", found.new), ("in the baseline only", found.absent)):
        if models:
            console.print(escape(f"{title}: {', '.join(models)}"), soft_wrap=True)


def _change(change: Change) -> str:
    if not change.phase:
        return f"{change.model}: {change.op}{'' if change.after else ' no longer'}"
    return f"{change.model}: {change.phase}: {change.op}: {change.before} → {change.after} nodes elsewhere than in TVM"
