"""A report: the coverage and the measurements of each model of a ledger file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.ledger import DeadEnd, PeerAnswer
from bridge.ledger.jsonl import LedgerFile
from bridge.report.cover import Step, cover
from bridge.report.coverage import Coverage, coverage
from bridge.report.peers import Peer, peers
from bridge.report.training import Training, training


@dataclass(frozen=True)
class ModelReport:
    """One model. name: "" where the file names none."""

    name: str
    coverage: Coverage
    training: Training


@dataclass(frozen=True)
class Report:
    """What a page or a table shows. about: free words on the run. together: the coverage over all models."""

    about: Mapping[str, str]
    models: tuple[ModelReport, ...]
    together: Coverage
    peers: tuple[Peer, ...] = ()

    @property
    def placed(self) -> tuple[ModelReport, ...]:
        """The models of which the file says how their nodes ran, or that they failed."""
        return tuple(model for model in self.models if model.coverage.nodes or model.coverage.failures)

    @property
    def whole(self) -> tuple[str, ...]:
        """The models of which nothing ran elsewhere."""
        return tuple(model.name for model in self.placed if model.coverage.whole)

    @property
    def blocked(self) -> dict[str, str]:
        """The models that no further op would make whole, and why."""
        return {model.name: model.coverage.blocked for model in self.placed if model.coverage.blocked}

    @property
    def steps(self) -> tuple[Step, ...]:
        """Which ops to write next, for the models that lack nothing but ops."""
        return cover({m.name: m.coverage.lacking for m in self.placed if not m.coverage.blocked})

    @property
    def dead_ends(self) -> dict[DeadEnd, int]:
        """How often each dead end was met, over all models."""
        return {end: sum(model.coverage.dead_ends[end] for model in self.models) for end in DeadEnd}


def make_report(file: LedgerFile) -> Report:
    """Sort the records of a file by model, in the order in which the models first appear."""
    names = dict.fromkeys(record.model for record in file.records if not isinstance(record, PeerAnswer))
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
    together = coverage(file.events, file.placements)
    return Report(file.about, tuple(models), together, peers(file.peers, file.placements))
