"""Files of trials, and the one that is kept of the rows. Needs neither torch nor its samples."""

from __future__ import annotations

from pathlib import Path

from bridge.ledger import Trial
from bridge.ledger.jsonl import read

ROWS = Path(__file__).parent / "rows.jsonl.gz"
"""What `bridge conform` found of the bridge's own rows."""


def tried(file: Path, importer: str) -> dict[str, list[Trial]]:
    """What a file tells of an importer, by overload."""
    found: dict[str, list[Trial]] = {}
    for trial in read(file).trials:
        if trial.importer == importer:
            found.setdefault(trial.op, []).append(trial)
    return found
