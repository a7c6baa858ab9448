"""What was measured while a model trained on several targets, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles

from bridge.ledger import Measure

REFERENCE = "eager"
"""The target that the others are compared with."""


@dataclass(frozen=True)
class Timing:
    """Seconds that a target took. low, high: the quartiles of the readings of a step. None: not measured."""

    target: str
    first_call: float | None = None
    step: float | None = None
    low: float | None = None
    high: float | None = None
    readings: int = 0


@dataclass(frozen=True)
class Training:
    """The curves of the loss, the times, and single numbers (name to target to value and unit)."""

    losses: Mapping[str, tuple[float, ...]]
    timings: tuple[Timing, ...]
    numbers: Mapping[str, Mapping[str, tuple[float, str]]]

    def largest_difference(self, target: str) -> tuple[float, int] | None:
        """The largest relative difference of a target's loss from eager's, and at which step, counted from 1.

        None without both curves; infinity if either has a loss that is no number where the other's is another.
        """
        reference, curve = self.losses.get(REFERENCE), self.losses.get(target)
        if not reference or not curve:
            return None
        differences = [_difference(one, other) for one, other in zip(curve, reference)]
        largest = max(differences)
        return largest, differences.index(largest) + 1


def training(measures: Iterable[Measure]) -> Training:
    """Sort what was measured of one model."""
    losses: dict[str, tuple[float, ...]] = {}
    steps: dict[str, tuple[float, ...]] = {}
    first_calls: dict[str, float] = {}
    numbers: dict[str, dict[str, tuple[float, str]]] = {}
    for measure in measures:
        if measure.name == "loss":
            losses[measure.target] = measure.values
        elif measure.name == "step":
            steps[measure.target] = measure.values
        elif measure.name == "first call":
            first_calls[measure.target] = measure.values[0]
        else:
            numbers.setdefault(measure.name, {})[measure.target] = (measure.values[0], measure.unit)
    targets = dict.fromkeys([*first_calls, *steps])
    timings = tuple(_timing(target, first_calls.get(target), steps.get(target, ())) for target in targets)
    return Training(losses, timings, numbers)


def _difference(value: float, reference: float) -> float:
    if value == reference or (math.isnan(value) and math.isnan(reference)):
        return 0.0
    difference = abs(value - reference) / max(abs(reference), 1e-30)
    return math.inf if math.isnan(difference) else difference


def _timing(target: str, first_call: float | None, readings: tuple[float, ...]) -> Timing:
    if not readings:
        return Timing(target, first_call)
    quartiles = quantiles(readings, n=4) if len(readings) > 1 else list(readings)
    return Timing(target, first_call, median(readings), quartiles[0], quartiles[-1], len(readings))
