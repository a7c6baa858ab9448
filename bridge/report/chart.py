"""Charts as SVG that takes its colours from the page: `--series-1` and so on, and `currentColor` for the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 330
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 34
"""Of a line chart, in SVG units: its size, and what the axes' labels need on each side."""


def line_chart(curves: Mapping[str, Sequence[float]], x_label: str) -> str:
    """Curves on one pair of axes. All but the first are dashed, so that they are seen where they coincide."""
    finite = [value for curve in curves.values() for value in curve if math.isfinite(value)]
    if not finite:
        return ""
    low, high, ticks = _scale(min(finite), max(finite))
    longest = max(len(curve) for curve in curves.values())
    body = [_axes(low, high, ticks, longest, x_label)]
    for position, (name, curve) in enumerate(curves.items(), start=1):
        for part in _paths(curve, low, high, longest):
            body.append(f'<path class="curve series-{position}" d="{part}"><title>{escape(name)}</title></path>')
    return _svg(WIDTH, HEIGHT, f"{x_label}: {', '.join(curves)}", body)


def step_chart(points: Sequence[tuple[int, int]], highest: int, x_label: str) -> str:
    """A staircase through points (x, y) that only grow, from x = 0; `highest` is a dashed line."""
    if not points:
        return ""
    _, top, ticks = _scale(0, max(highest, 1))
    ticks = [tick for tick in ticks if tick == int(tick)]
    end = points[-1][0] + max(1, points[-1][0] // 10)
    longest = end + 1
    path, before = [], points[0][1]
    for x, y in (*points, (end, points[-1][1])):
        path += [f"{_x(x, longest):.1f},{_y(before, 0, top):.1f}", f"{_x(x, longest):.1f},{_y(y, 0, top):.1f}"]
        before = y
    line = _y(highest, 0, top)
    body = [
        _axes(0, top, ticks, longest, x_label, first=0),
        f'<line class="ceiling" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{line:.1f}" y2="{line:.1f}"/>',
        f'<path class="stairs" d="M{" L".join(path)}"/>',
    ]
    return _svg(WIDTH, HEIGHT, f"{x_label}: {', '.join(f'{x} → {y}' for x, y in points)}", body)


def share_bar(shares: Mapping[str, float]) -> str:
    """One horizontal bar of parts that add up to 100; each takes the class of its name."""
    there = {escape(name): part for name, part in shares.items() if part > 0}
    body = [f'<i class="way-{name}" style="width:{part:.2f}%"></i>' for name, part in there.items()]
    label = ", ".join(f"{name} {part:.1f} %" for name, part in there.items())
    return f'<div class="share" role="img" aria-label="{label}">{"".join(body)}</div>'


def range_bar(value: float, low: float, high: float, largest: float) -> str:
    """A bar from nought to `value`, with a whisker from `low` to `high`; `largest` fills the width."""
    scale = 100 / largest if largest > 0 else 0.0
    body = [
        f'<rect class="bar" x="0" y="1" width="{value * scale:.2f}" height="8"/>',
        f'<rect class="whisker" x="{low * scale:.2f}" y="4" width="{max((high - low) * scale, 0.3):.2f}" height="2"/>',
    ]
    return _svg(100, 10, f"{value:.4g} ({low:.4g} to {high:.4g}) seconds", body, stretch=True)


def _svg(width: int, height: int, label: str, body: Sequence[str], stretch: bool = False) -> str:
    aspect = ' preserveAspectRatio="none"' if stretch else ""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}"{aspect}>'
        + "".join(body)
        + "</svg>"
    )


def _scale(low: float, high: float) -> tuple[float, float, list[float]]:
    """An axis that holds both values, with four to eight ticks at round numbers."""
    span = high - low or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span))
    unit = next(step * power for step in (0.2, 0.5, 1.0, 2.0) if span / (step * power) <= 6)
    first, last = math.floor(low / unit), math.ceil(high / unit)
    return first * unit, last * unit, [tick * unit for tick in range(first, last + 1)]


def _x(step: int, longest: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / max(longest - 1, 1)


def _y(value: float, low: float, high: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))


def _axes(low: float, high: float, ticks: Sequence[float], longest: int, x_label: str, first: int = 1) -> str:
    lines = []
    for tick in ticks:
        y = _y(tick, low, high)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:.4g}</text>')
    base = HEIGHT - BOTTOM + 16
    for step in sorted({0, longest // 2, longest - 1}):
        lines.append(f'<text x="{_x(step, longest):.1f}" y="{base}" text-anchor="middle">{step + first}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    return "".join(lines)


def _paths(curve: Sequence[float], low: float, high: float, longest: int) -> list[str]:
    """The curve as SVG paths; what is not finite parts it."""
    paths: list[list[str]] = [[]]
    for step, value in enumerate(curve):
        if math.isfinite(value):
            paths[-1].append(f"{_x(step, longest):.1f},{_y(value, low, high):.1f}")
        elif paths[-1]:
            paths.append([])
    return ["M" + " L".join(points) for points in paths if points]
