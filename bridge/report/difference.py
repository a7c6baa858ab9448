"""One file against an earlier one: what no longer runs in TVM, and what now does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bridge.ledger import Way
from bridge.ledger.jsonl import LedgerFile
from bridge.report.coverage import FAILED, with_uncaptured

Place = tuple[str, str, str]
"""A model, a phase and an op."""


@dataclass(frozen=True)
class Change:
    """Nodes of one op in one phase that fell back or were not captured; of a model that failed, the failure."""

    model: str
    phase: str
    op: str
    before: int
    after: int


@dataclass(frozen=True)
class Difference:
    """worse, better: by model. new, absent: models that only the later or only the earlier file has."""

    worse: tuple[Change, ...]
    better: tuple[Change, ...]
    new: tuple[str, ...]
    absent: tuple[str, ...]


def difference(before: LedgerFile, after: LedgerFile) -> Difference:
    """Compare the models that both files have. Of a model that failed in one of them, only the failure is compared."""
    old, new = _models(before), _models(after)
    common = [model for model in new if model in old]
    failed = {model for model in common if _failures(before, model) or _failures(after, model)}
    earlier, later = _elsewhere(before, failed), _elsewhere(after, failed)
    met = dict.fromkeys([*earlier, *later])
    places = [place for model in common for place in met if place[0] == model]
    changes = [Change(*place, earlier[place], later[place]) for place in places]
    return Difference(
        worse=tuple(change for change in changes if change.after > change.before),
        better=tuple(change for change in changes if change.after < change.before),
        new=tuple(model for model in new if model not in old),
        absent=tuple(model for model in old if model not in new),
    )


def _models(file: LedgerFile) -> list[str]:
    return list(dict.fromkeys(record.model for record in (*file.placements, *file.events)))


def _failures(file: LedgerFile, model: str) -> Counter[Place]:
    return Counter((model, "", event.kind) for event in file.events if event.model == model and event.kind in FAILED)


def _elsewhere(file: LedgerFile, failed: set[str]) -> Counter[Place]:
    counts: Counter[Place] = Counter()
    for model in failed:
        counts += _failures(file, model)
    for one in with_uncaptured(file.events, file.placements):
        if one.way in (Way.FALLBACK, Way.UNCAPTURED) and one.model not in failed:
            counts[one.model, one.phase, one.op] += one.nodes
    return counts
