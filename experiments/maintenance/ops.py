"""Which ATen ops each torch release brought and dropped, read from its wheel with nothing imported.

python -m experiments.maintenance.ops WHEEL…      keeps them in results/ops.jsonl
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bridge.signatures import Sources
from bridge.touched import numbers

RESULTS = Path(__file__).parent / "results" / "ops.jsonl"
DECLARED = "torchgen/packaged/ATen/native/native_functions.yaml"


@dataclass(frozen=True)
class Release:
    """The overloads that a release declares, against the release before it."""

    release: str
    overloads: int
    new: tuple[str, ...]
    gone: tuple[str, ...]


def declared(wheel: Path) -> set[str]:
    """Every overload that a wheel of torch's declares: "add.Tensor"."""
    text = Sources(wheel).text(DECLARED)
    if text is None:
        raise FileNotFoundError(f"{wheel.name} has no {DECLARED}")
    return set(re.findall(r"^- func: ([\w.]+)\(", text, re.MULTILINE))


def releases(wheels: Sequence[Path]) -> list[Release]:
    """What each wheel's release brought, the oldest first; it is compared with nothing, and brought nothing."""
    by_release = {wheel.name.split("-")[1].split("+")[0]: declared(wheel) for wheel in wheels}
    ordered = sorted(by_release, key=numbers)
    made, before = [], by_release[ordered[0]]
    for release in ordered:
        ops = by_release[release]
        made.append(Release(release, len(ops), tuple(sorted(ops - before)), tuple(sorted(before - ops))))
        before = ops
    return made


def kept() -> list[Release]:
    """The releases that are kept, the oldest first."""
    return [Release(**json.loads(line)) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    lines = [json.dumps(asdict(release)) for release in releases(list(map(Path, sys.argv[1:])))]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
