"""A report as JSON, for other programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from bridge.ledger import Way
from bridge.report.coverage import Coverage
from bridge.report.report import ModelReport, Report


def report_json(report: Report) -> str:
    """The report as one JSON object. What is not finite is null."""
    content = {
        "about": dict(report.about),
        "dead_ends": {end.value: count for end, count in report.dead_ends.items()},
        "amounts": _amounts(report.together),
        "whole": list(report.whole),
        "blocked": report.blocked,
        "next_ops": [vars(step) for step in report.steps],
        "peers": [vars(peer) for peer in report.peers],
        "reasons": _reasons(report.together),
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
        "amounts": _amounts(coverage),
        "whole": coverage.whole,
        "failures": list(coverage.failures),
        "reasons": _reasons(coverage),
        "losses": training.losses,
        "largest_difference": {
            target: None if largest is None else {"relative": largest[0], "step": largest[1]}
            for target in training.losses
            for largest in [training.largest_difference(target)]
        },
        "timings": [vars(timing) for timing in training.timings],
        "numbers": training.numbers,
    }


def _reasons(coverage: Coverage) -> list[dict[str, Any]]:
    return [vars(reason) | {"dead_end": reason.dead_end.value} for reason in coverage.reasons]


def _amounts(coverage: Coverage) -> dict[str, Any]:
    """By quantity, phase and way; null for what nobody knows."""
    return {
        quantity.value: {phase: _ways(cell.ways) | {"unknown_nodes": cell.unknown} for phase, cell in cells.items()}
        for quantity, cells in coverage.amounts.items()
    }


def _ways(ways: Mapping[Way, Any]) -> dict[str, Any]:
    return {way.value: nodes for way, nodes in ways.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
