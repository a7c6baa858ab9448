"""What a file of results says: how many entries ended in which way, which are wrong, and what most of them lack."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from bridge.ledger import Event, Measure, Placement, Record, Way
from experiments.conformance.entry import CRASHED, NO_SAMPLE, NOT_CAPTURED, RAISED, SAMPLES, WRONG
from experiments.conformance.modules import MODULES
from experiments.conformance.samples import has_gradient

GENERATED, WITH_LIBRARY, WITH_FALLBACK = "all generated", "generated with library", "with fallback"
NOTHING = "nothing to compute"
UNCAPTURED, UNSUPPORTED = "not captured", "no sample in eager"
ORDER = (GENERATED, WITH_LIBRARY, NOTHING, WITH_FALLBACK, UNCAPTURED, UNSUPPORTED, WRONG, RAISED, CRASHED)
"""How an entry can end, the best first. It ends as the worst of its samples does."""


@dataclass(frozen=True)
class Verdict:
    """How an entry ended. detail: which ops fell back, why it was not captured, or in what it is wrong."""

    verdict: str
    detail: str

    @property
    def line(self) -> str:
        return f"{self.verdict}: {self.detail}" if self.detail else self.verdict


def verdicts(records: Iterable[Record]) -> dict[str, Verdict]:
    """How each entry ended of which the records tell the end."""
    entries: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        entries[record.model].append(record)
    return {name: _verdict(own) for name, own in entries.items() if any(_is_end(record) for record in own)}


def _is_end(record: Record) -> bool:
    return (isinstance(record, Measure) and record.name == SAMPLES) or (
        isinstance(record, Event) and record.kind == CRASHED
    )


def _verdict(records: Sequence[Record]) -> Verdict:
    events = [record for record in records if isinstance(record, Event)]
    ends = ((CRASHED, CRASHED), (WRONG, WRONG), (RAISED, RAISED), (NO_SAMPLE, UNSUPPORTED), (NOT_CAPTURED, UNCAPTURED))
    for kind, verdict in ends:
        told = [event for event in events if event.kind == kind]
        if told:
            return Verdict(verdict, f"{told[0].op}: {told[0].detail}")
    ops = {way: sorted({p.op for p in records if isinstance(p, Placement) and p.way is way}) for way in Way}
    if ops[Way.FALLBACK]:
        return Verdict(WITH_FALLBACK, ", ".join(ops[Way.FALLBACK]))
    if ops[Way.LIBRARY]:
        return Verdict(WITH_LIBRARY, ", ".join(ops[Way.LIBRARY]))
    return Verdict(GENERATED if ops[Way.GENERATED] else NOTHING, "")


def print_summary(records: Sequence[Record], console: Console, names: Iterable[str], dtype: str) -> None:
    """Print the number of entries of each end, those that are not right, and what the others lack."""
    ended = {name: verdict for name, verdict in verdicts(records).items() if name in set(names)}
    console.print(_ends(ended, dtype))
    console.print(_table("Not right", ("entry", "verdict", "in what"), [
        (name, v.verdict, v.detail) for name, v in ended.items() if v.verdict in (WRONG, RAISED, CRASHED)
    ]))  # fmt: skip
    needed: dict[str, list[str]] = defaultdict(list)
    for name, v in ended.items():
        if v.verdict == WITH_FALLBACK:
            for op in v.detail.split(", "):
                needed[op].append(name)
    by_need = sorted(needed.items(), key=lambda item: (-len(item[1]), item[0]))
    console.print(_table("What falls back", ("op", "entries", "for instance"), [
        (op, str(len(entries)), ", ".join(entries[:4])) for op, entries in by_need
    ]))  # fmt: skip
    reasons: Counter[tuple[str, str]] = Counter(
        (record.op, record.detail)
        for record in records
        if isinstance(record, Event) and record.kind == NOT_CAPTURED and record.model in ended
    )
    console.print(_table("What is not captured", ("entries", "where", "why"), [
        (str(count), *what) for what, count in reasons.most_common()
    ]))  # fmt: skip


def _ends(ended: dict[str, Verdict], dtype: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=f"In {dtype}: {len(ended)} entries", title_justify="left")
    table.add_column("ends as")
    table.add_column("entries", justify="right")
    table.add_column("with a gradient", justify="right")
    counts = Counter(v.verdict for v in ended.values())
    trained = Counter(
        v.verdict for name, v in ended.items() if name in MODULES or has_gradient(name, getattr(torch, dtype))
    )
    for verdict in ORDER:
        table.add_row(verdict, str(counts[verdict]), str(trained[verdict]))
    return table


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    return table
