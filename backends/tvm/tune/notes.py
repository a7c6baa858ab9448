"""What tuner and asker tell one another by files in the folder of a build, while the search goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

STOP = "stop"
"""A file that ends the search; what was found so far is used."""

NOTES = "tuning.json"


@dataclass(frozen=True)
class Progress:
    """How far the search is. Written aside and moved into its place, so that it is read whole."""

    folder: Path

    def write(self, kernel: str, number: int, count: int, trials: int) -> None:
        """kernel: the one in hand, `number` of `count`. trials: of it."""
        aside = self.folder / f"{NOTES}.new"
        aside.write_text(json.dumps({"kernel": kernel, "number": number, "count": count, "trials": trials}))
        aside.replace(self.folder / NOTES)

    def read(self) -> str:
        """It in words, "" before the search began."""
        path = self.folder / NOTES
        if not path.exists():
            return ""
        told = json.loads(path.read_text())
        return f"{told['kernel']} ({told['number'] + 1} of {told['count']}, {told['trials']} tried)"
