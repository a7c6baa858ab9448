"""A curve drawn with braille characters, two by four dots each."""

from __future__ import annotations

import math
from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a braille character, by row and column."""


def braille(curve: Sequence[float], low: float, high: float, width: int, height: int) -> list[str]:
    """`height` lines of `width` characters. The curve spans the width; values from `low` (bottom) to `high` (top).

    Neighbouring points are joined. What is not finite leaves a gap.
    """
    cells = [[0] * width for _ in range(height)]
    columns, rows = 2 * width, 4 * height
    previous: int | None = None
    for column in range(columns):
        value = curve[round(column * (len(curve) - 1) / max(columns - 1, 1))] if curve else math.nan
        if not math.isfinite(value):
            previous = None
            continue
        share = (value - low) / (high - low) if high > low else 0.5
        row = round((1 - min(max(share, 0.0), 1.0)) * (rows - 1))
        start = row if previous is None else previous + (row > previous) - (row < previous)
        for passed in range(min(start, row), max(start, row) + 1):
            cells[passed // 4][column // 2] |= _DOTS[passed % 4][column % 2]
        previous = row
    return ["".join(chr(0x2800 + dots) for dots in line) for line in cells]
