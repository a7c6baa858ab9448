"""Numbers as people read them, the same in every form of a report."""

from __future__ import annotations


def seconds(value: float | None) -> str:
    """A time with three figures and the unit that suits it; a dash for none."""
    if value is None:
        return "–"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{_three_figures(value / factor)} {unit}"
    return f"{_three_figures(value / 1e-9)} ns"


def amount(value: float | None, unit: str = "") -> str:
    """A number with three figures and a prefix where it is large: 873, 12.3 k, 4.56 G; "?" for what is not known."""
    if value is None:
        return "?"
    if unit == "s":
        return seconds(value) if value else "0 s"
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= factor:
            factor = 1e3 if prefix == "k" else factor
            return f"{_three_figures(value / factor)} {prefix}{unit}"
    return f"{value:.0f}{' ' + unit if unit else ''}"


def percent(value: float) -> str:
    """A percentage; what is not quite none or all is not rounded to it."""
    if 0 < value < 0.1:
        return "<0.1 %"
    if 99.9 < value < 100:
        return ">99.9 %"
    return f"{value:.0f} %" if value in (0, 100) else f"{value:.1f} %"


def _three_figures(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
