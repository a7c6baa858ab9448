"""A report as JSON, for other programs."""

from __future__ import annotations

import json
import math
from typing import Any

from bridge.report.report import ModelReport, Report


def report_json(report: Report) -> str:
    """The report as one JSON object. What is not finite is null."""
    content = {
        "about": dict(report.about),
        "dead_ends": {end.value: count for end, count in report.dead_ends.items()},
        "models": [_model(model) for model in report.models],
    }
    return json.dumps(_finite(content), indent=2, allow_nan=False)


def _model(model: ModelReport) -> dict[str, Any]:
    coverage, training = model.coverage, model.training
    return {
        "name": model.name,
        "placement": {phase: _ways(ways) for phase, ways in coverage.phases.items()},
        "ops": {op: _ways(ways) for op, ways in coverage.ops.items()},
        "dead_ends": {end.value: count for end, count in coverage.dead_ends.items()},
        "reasons": [vars(reason) | {"dead_end": reason.dead_end.value} for reason in coverage.reasons],
        "losses": training.losses,
        "largest_difference": {
            target: None if largest is None else {"relative": largest[0], "step": largest[1]}
            for target in training.losses
            for largest in [training.largest_difference(target)]
        },
        "timings": [vars(timing) for timing in training.timings],
        "numbers": training.numbers,
    }


def _ways(ways: Any) -> dict[str, int]:
    return {way.value: nodes for way, nodes in ways.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
