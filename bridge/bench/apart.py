"""Times a model in processes of its own: one with empty caches, one that finds what the first one built."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from bridge.cli.processes import Child, records_of
from bridge.ledger import Record


def bench(
    target: str, name: str, rounds: int, limit: float, children: set[Child], folder: Path | None = None
) -> list[Record]:
    """The measures of a target, its first step cold and warm among them. Raises ProcessEnded.

    limit: seconds that a process may take. children: holds the process that runs. folder: where it runs.
    """
    records: list[Record] = []
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as cache:
        for number in (rounds, 0):
            options = json.dumps({"cache": cache, "rounds": number, "name": name})
            records += records_of("bridge.bench.process", target, [options], limit, children, threads, folder)
    return records
