"""A report as one HTML page that needs nothing from anywhere else."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from bridge.ledger import DeadEnd, Way
from bridge.report.amounts import UNITS, Cell
from bridge.report.chart import line_chart, range_bar, share_bar, step_chart
from bridge.report.coverage import DEAD_END_TITLES, Ways, share
from bridge.report.numbers import amount, percent, seconds
from bridge.report.report import Report
from bridge.report.training import REFERENCE, Timing, Training

MOST_OPEN = 4
"""Up to so many models each has its section open on the page."""

MOST_WHOLE = 12
"""Beyond so many, those that run whole stand in the table of all models alone."""

_EXPLAINED = {
    DeadEnd.COVERAGE: "no conversion takes it, or torch left it out of every graph",
    DeadEnd.DYNAMIC_SHAPE: "a size is not known when compiling",
    DeadEnd.API_INSTABILITY: "the frameworks' own interfaces moved",
    DeadEnd.INPLACE_OPTIMIZER: "something is written in place",
    DeadEnd.MAINTENANCE: "TVM failed on what it should do",
}


def report_html(report: Report) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("bridge.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(seconds=seconds, percent=percent, amount=amount)
    return environment.get_template("report.html").render(
        report=report,
        ways=tuple(Way),
        titles=DEAD_END_TITLES,
        explained=_EXPLAINED,
        reference=REFERENCE,
        share=share,
        units=UNITS,
        most_open=MOST_OPEN,
        most_whole=MOST_WHOLE,
        cell_bar=_cell_bar,
        stairs=_stairs,
        losses=_losses,
        ways_bar=_ways_bar,
        step_bar=_step_bar,
    )


def _losses(training: Training) -> Markup:
    return Markup(line_chart(training.losses, "training step"))


def _ways_bar(ways: Ways) -> Markup:
    return Markup(share_bar({way.value: share(ways, way) for way in Way}))


def _cell_bar(cell: Cell) -> Markup:
    return Markup(share_bar({way.value: cell.share(way) for way in Way}))


def _stairs(report: Report) -> Markup:
    """Models that run whole by the number of ops that are written for them."""
    whole = len(report.whole)
    points = [(0, whole), *((step.all_ops, whole + step.all_models) for step in report.steps)]
    return Markup(step_chart(points, len(report.placed), "ops written"))


def _step_bar(timing: Timing, training: Training) -> Markup:
    if timing.step is None or timing.low is None or timing.high is None:
        return Markup("")
    largest = max(other.high or 0.0 for other in training.timings)
    return Markup(range_bar(timing.step, timing.low, timing.high, max(largest, timing.step)))
