"""A report on the terminal."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge.report.braille import braille
from bridge.report.coverage import DEAD_END_TITLES, Coverage
from bridge.report.numbers import seconds
from bridge.report.overview import amounts_table, print_next, print_overview
from bridge.report.report import ModelReport, Report
from bridge.report.training import REFERENCE, Training

PLOT_HEIGHT = 8
MOST_REASONS = 20
MOST_MODELS = 4


def print_report(report: Report, console: Console) -> None:
    """Print how nodes ran, why some did not run in TVM, and what was measured: of each model, or of many together."""
    if len(report.placed) > MOST_MODELS:
        print_overview(report, console)
        console.print(_dead_ends(report.together))
    else:
        _print_each(report, console)
    print_next(report, console)


def _print_each(report: Report, console: Console) -> None:
    for model in report.models:
        console.rule(f"[bold]{escape(model.name or 'model')}")
        if model.name in report.about:
            console.print(escape(report.about[model.name]), style="dim", justify="center")
        for part in _parts(model, console.width):
            console.print(part)


def _parts(model: ModelReport, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if model.training.losses:
        parts.append(_curves(model.training, width))
    if model.training.timings:
        parts.append(_timings(model.training))
    if model.training.numbers:
        parts.append(_numbers(model.training))
    if model.coverage.phases:
        parts.append(amounts_table(model.coverage))
    parts += [Text(failure, style="red") for failure in model.coverage.failures]
    parts.append(_dead_ends(model.coverage))
    return parts


def _curves(training: Training, width: int) -> RenderableType:
    """The curves of the loss side by side on one scale, and how far each is from eager's."""
    finite = [value for curve in training.losses.values() for value in curve if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    each = max(16, min(60, (width - 2) // len(training.losses) - 6))
    grid = Table.grid(padding=(0, 1))
    panels: list[RenderableType] = []
    for target, curve in training.losses.items():
        lines = "\n".join(braille(curve, low, high, each, PLOT_HEIGHT))
        title = f"loss, {target}: {curve[0]:.4g} → {curve[-1]:.4g}" if curve else f"loss, {target}"
        panels.append(Panel(lines, title=escape(title), subtitle=f"{low:.2f} to {high:.2f}", box=box.ROUNDED))
    grid.add_row(*panels)
    return Group(grid, *(_difference(training, target) for target in training.losses if target != REFERENCE))


def _difference(training: Training, target: str) -> str:
    largest = training.largest_difference(target)
    if largest is None:
        return f"{escape(target)}: no curve of {REFERENCE} to compare with"
    steps = len(training.losses[target])
    return f"largest relative difference of the loss, {escape(target)} from {REFERENCE}: [bold]{largest[0]:.1e}[/] " + (
        f"(step {largest[1]} of {steps})" if largest[0] else f"({steps} steps, bit for bit the same)"
    )


def _timings(training: Training) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="time", title_justify="left", title_style="bold")
    table.add_column("target")
    for heading in ("first call", "step, median", "quartiles", "readings"):
        table.add_column(heading, justify="right")
    for timing in training.timings:
        spread = f"{seconds(timing.low)} – {seconds(timing.high)}" if timing.readings else "–"
        table.add_row(
            timing.target, seconds(timing.first_call), seconds(timing.step), spread, str(timing.readings or "–")
        )
    return table


def _numbers(training: Training) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, by_target in training.numbers.items():
        values = [
            f"{target} [bold]{value:.4g}{' ' + unit if unit else ''}[/]" for target, (value, unit) in by_target.items()
        ]
        table.add_row(escape(name), *values)
    return table


def _dead_ends(coverage: Coverage) -> RenderableType:
    counts = ", ".join(f"{DEAD_END_TITLES[end]} [bold]{count}[/]" for end, count in coverage.dead_ends.items())
    heading = f"[bold]dead ends[/]: {counts}"
    if not coverage.reasons:
        return heading
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("count", "dead end", "op", "why", "taken by", "where"):
        table.add_column(name, overflow="fold", justify="right" if name == "count" else "left")
    for reason in coverage.reasons[:MOST_REASONS]:
        where = reason.sources[0] if reason.sources else ""
        more = f" (and {len(reason.sources) - 1} more)" if len(reason.sources) > 1 else ""
        cells = (DEAD_END_TITLES[reason.dead_end], reason.op, reason.detail, reason.backend or "–", where + more)
        table.add_row(str(reason.count), *(escape(cell) for cell in cells))
    left = len(coverage.reasons) - MOST_REASONS
    return Group(heading, table, *([f"and {left} more reasons, in the HTML page"] if left > 0 else []))
