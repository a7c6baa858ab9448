"""What became of the calls of new ops, as it is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "new_ops.jsonl"


@dataclass(frozen=True)
class Outcome:
    """How the nodes of one call would run, by op. error: why it cannot be called here; then there are no nodes."""

    name: str
    series: str
    torch: str
    generated: dict[str, int]
    library: dict[str, int]
    fallback: dict[str, int]
    error: str = ""

    @property
    def handled(self) -> bool:
        return not self.error and not self.fallback


def kept() -> list[Outcome]:
    """The outcomes that are kept."""
    return [Outcome(**json.loads(line)) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
