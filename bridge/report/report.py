"""A report: the coverage and the measurements of each model of a ledger file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.ledger import DeadEnd
from bridge.ledger.jsonl import LedgerFile
from bridge.report.coverage import Coverage, coverage
from bridge.report.training import Training, training


@dataclass(frozen=True)
class ModelReport:
    """One model. name: "" where the file names none."""

    name: str
    coverage: Coverage
    training: Training


@dataclass(frozen=True)
class Report:
    """What a page or a table shows. about: free words on the run."""

    about: Mapping[str, str]
    models: tuple[ModelReport, ...]

    @property
    def dead_ends(self) -> dict[DeadEnd, int]:
        """How often each dead end was met, over all models."""
        return {end: sum(model.coverage.dead_ends[end] for model in self.models) for end in DeadEnd}


def make_report(file: LedgerFile) -> Report:
    """Sort the records of a file by model, in the order in which the models first appear."""
    names = dict.fromkeys(record.model for record in file.records)
    models = [
        ModelReport(
            name,
            coverage(
                (event for event in file.events if event.model == name),
                (placement for placement in file.placements if placement.model == name),
            ),
            training(measure for measure in file.measures if measure.model == name),
        )
        for name in names
    ]
    return Report(file.about, tuple(models))
