"""The numbers in docs/dead-ends.md, made from the kept results.

python -m experiments.dead_ends     writes them into the document anew
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bridge.ledger import DeadEnd, Event, Way
from bridge.ledger.jsonl import LedgerFile, read
from bridge.touched import TORCH, numbers
from experiments.api_instability import probe
from experiments.dynamic_shape import run
from experiments.maintenance import outcomes, upstream
from experiments.page import between

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dead-ends.md"
CORPUS = "experiments/coverage/results/corpus.jsonl.gz"
DYNAMIC = "experiments/dynamic_shape/results/corpus.jsonl.gz"
PROBED = "experiments/api_instability/README.md"
KEPT_UP = "experiments/maintenance/README.md"
SUPPORTED = (2, 11)
"""The first torch series that the bridge supports."""

BEGIN, END = "<!-- numbers: python -m experiments.dead_ends -->", "<!-- end of the numbers -->"


def table() -> str:
    """A line for each dead end, in Markdown."""
    held = read(ROOT / CORPUS)
    models = len({placement.model for placement in held.placements})
    lines = [
        ("coverage", coverage(held, models), CORPUS),
        ("dynamic_shape", dynamic_shape(held, models), DYNAMIC),
        ("api_instability", api_instability(), PROBED),
        ("inplace_optimizer", inplace_optimizer(held, models), CORPUS),
        ("maintenance", maintenance(held), KEPT_UP),
    ]
    rows = [f"| `{name}` | {told} | [{file.rpartition('/')[2]}](../{file}) |" for name, told, file in lines]
    return "\n".join(["| dead end | today | kept in |", "|---|---|---|", *rows])


def coverage(held: LedgerFile, models: int) -> str:
    nodes: Counter[Way] = Counter()
    for placement in held.placements:
        nodes[placement.way] += placement.nodes
    captured = sum(nodes.values()) - nodes[Way.UNCAPTURED]
    fell = {p.model for p in held.placements if p.way is Way.FALLBACK}
    share = f"{100 * nodes[Way.FALLBACK] / captured:.2f} %"
    return f"{models - len(fell)} of {models} real models train without any fallback; {share} of the nodes fall back"


def dynamic_shape(held: LedgerFile, models: int) -> str:
    found = events(held, DeadEnd.DYNAMIC_SHAPE)
    times = sum(event.count for event in found if event.kind == "recompiled")
    batches = run.outcome(read(ROOT / DYNAMIC).records)
    return (
        f"with a batch marked as dynamic {len(batches.right)} of {len(batches.ended)} models that were tried train "
        f"right, {len(batches.untouched)} without any event; {len({e.model for e in found})} of {models}, with "
        f"static sizes, were compiled again, {times} times"
    )


def api_instability() -> str:
    needed = {touched.name for touched in TORCH if not touched.without}
    readings = [r for r in probe.kept("torch") if r.name in needed and numbers(r.series) >= SUPPORTED]
    releases = list(dict.fromkeys(reading.release for reading in readings))
    broken = {reading.release for reading in readings if reading.refused}
    adapted = {reading.release for reading in readings if reading.adapted}
    return (
        f"{len(needed)} private names under a training, {len(TORCH) - len(needed)} under tools; without the adapters "
        f"it would break on {len(broken)} of {len(releases)} releases of torch, with them on {len(adapted)}"
    )


def inplace_optimizer(held: LedgerFile, models: int) -> str:
    found = events(held, DeadEnd.INPLACE_OPTIMIZER)
    copied = f"{sum(event.bytes for event in found) / 1e6:.1f} MB"
    return f"{len({e.model for e in found})} of {models} models have buffers that are copied back, {copied} in all"


def maintenance(held: LedgerFile) -> str:
    failed = len(events(held, DeadEnd.MAINTENANCE))
    calls = [one for one in outcomes.kept() if not one.error]
    handled = sum(one.handled for one in calls)
    return (
        f"the compiler failed {failed} times over the models; {len(upstream.UPSTREAM)} upstream faults are worked "
        f"around; {handled} of {len(calls)} calls of what is new in torch since 2.12 need no new row"
    )


def events(held: LedgerFile, dead_end: DeadEnd) -> Sequence[Event]:
    return [record for record in held.records if isinstance(record, Event) and record.dead_end is dead_end]


if __name__ == "__main__":
    between(PAGE, BEGIN, END, table())
