"""Try many overloads, each in a process that it may end, and keep what is found at once, so a run can be taken up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bridge.backends.tvm.table import table
from bridge.conformance.pool import in_workers
from bridge.conformance.trials import KEPT_DETAIL
from bridge.errors import BridgeError, WorkerFailure
from bridge.ledger import End, Trial
from bridge.ledger.jsonl import append, read
from bridge.runtime.worker import Worker


class UnknownOp(BridgeError):
    """There is no overload of that name among the rows."""


def chosen(names: Sequence[str]) -> list[str]:
    """The overloads of the table that are meant by "aten.add.Tensor", "aten.add" or "add"; all if none is named."""
    known = sorted(str(op) for op in table())
    found: list[str] = []
    for name in names:
        meant = [op for op in known if op == name or op.rpartition(".")[0] in (name, f"aten.{name}")]
        if not meant:
            raise UnknownOp(f"no overload {name!r} among the rows; `bridge ops` lists them")
        found += [op for op in meant if op not in found]
    return found or known


def sweep(
    ops: Sequence[str], importer: str, file: Path, jobs: int, limit: float, served: str = "bridge.conformance.serve"
) -> Iterator[tuple[str, list[Trial]]]:
    """Try the overloads, so many at a time; each when its trials are in the file."""
    for op, trials in in_workers(ops, lambda worker, op: _apart(worker, op, importer, limit), served, jobs):
        append(file, trials)
        yield op, trials


def _apart(worker: Worker, op: str, importer: str, limit: float) -> list[Trial]:
    """The trials of an overload, or what became of the process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trials.jsonl"
        try:
            worker.call({"op": op, "importer": importer, "file": str(file)}, limit)
        except WorkerFailure as failure:
            last = " ".join(failure.detail.split())[-KEPT_DETAIL:]
            return [Trial(op, importer, End.CRASHED, 1, detail=f"{failure.kind}: {last}")]
        return list(read(file).trials) or [Trial(op, importer, End.REFUSED, 0, detail="torch has no sample of it")]
