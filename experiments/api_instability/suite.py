"""The tests under another torch: run in pieces by the Python of an environment that has it, and counted.

    python -m experiments.api_instability.suite PYTHON FOLDER PIECE…     reports lie in FOLDER, counts in results/

A piece is a file or a folder of tests. What is kept of the same torch and piece is replaced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

RESULTS = Path(__file__).parent / "results" / "suites.jsonl"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Piece:
    """How the tests of one piece ended under one torch. failed: the names of those that failed or raised."""

    torch: str
    piece: str
    passed: int
    skipped: int
    failed: tuple[str, ...]


def run(python: Path, folder: Path, piece: str) -> Piece:
    """Run the tests of a piece. Raises CalledProcessError if pytest itself fails, as where nothing is collected."""
    report = folder / f"{piece.replace('/', '_')}.xml"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(python), "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--junitxml={report}", piece]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode not in (0, 1):
        done.check_returncode()
    version = [str(python), "-c", "import torch; print(torch.__version__)"]
    torch = subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip()
    return read(report, torch, piece)


def read(report: Path, torch: str, piece: str) -> Piece:
    """The counts of a report in JUnit's form."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Piece(torch, piece, len(cases) - len(failed) - skipped, skipped, tuple(failed))


def kept() -> list[Piece]:
    """The pieces that are kept."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [Piece(**{**(held := json.loads(line)), "failed": tuple(held["failed"])}) for line in lines]


def keep(new: Iterable[Piece]) -> None:
    """Keep pieces, in place of what is kept of the same torch and piece."""
    held = {(piece.torch, piece.piece): piece for piece in [*kept(), *new]}
    lines = [json.dumps(asdict(held[key])) for key in sorted(held)]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    python, folder, *pieces = sys.argv[1:]
    for each in pieces:
        keep([run(Path(python), Path(folder), each)])
