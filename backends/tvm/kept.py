"""What became of a graph, kept on disk as data: found again, no node is placed or lowered, and TVM is not loaded.

An entry holds how each node runs, the events of that, and what the program is written by, beside the kernels. The
program itself is written anew from the graph, so that it, the events and the ledger name the lines of the user's
program as it is now.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bridge.backends.tvm.bounds import checks
from bridge.backends.tvm.built import Built, loaded, scratch
from bridge.backends.tvm.lowered import Plan, constants_of
from bridge.errors import LedgerFormatError
from bridge.ir.compiled import Way
from bridge.ir.joint import Graph
from bridge.ir.provenance import source_line
from bridge.ir.text import Untold, described
from bridge.ledger import DeadEnd, Event
from bridge.ledger.jsonl import read, write
from bridge.options import Options
from bridge.runtime.cache import code_digest, users_cache
from bridge.versions import installed

PLAN, EVENTS = "plan.json", "events.jsonl"


@dataclass(frozen=True)
class Found:
    """A plan with its kernels. placement: the backend of each node. events: what is to be said of it."""

    plan: Plan
    built: Built
    placement: Mapping[str, str]
    events: tuple[Event, ...]


def key_of(graph: Graph, options: Options) -> str | None:
    """The entry's name, from all that decides what becomes of a graph; None where that cannot be told by text.

    That is so for symbolic sizes, which stand for more than their text; on a GPU, where what is quicker is tried; with
    a fallback that compiles by itself; and beside rows that are not the bridge's own.
    """
    plain = options.cache and options.target != "triton" and options.order("cpu") == ("eager",)
    if graph.device.type != "cpu" or not plain or _has_foreign_rows():
        return None
    try:
        text = described(graph)
    except Untold:
        return None
    threads = torch.get_num_threads() if options.tune else None
    chosen = repr((replace(options, timeout=1.0, dynamic=None), torch.get_default_dtype(), threads))
    return hashlib.sha256("\n".join([text, chosen, *_surroundings()]).encode()).hexdigest()


@dataclass(frozen=True)
class Entry:
    """What is to be kept beside the kernels of a build."""

    key: str
    content: Mapping[str, Any]
    events: tuple[Event, ...]

    def write(self, folder: Path) -> None:
        """Lay it down where the build lies."""
        (folder / PLAN).write_text(json.dumps(self.content))
        write(folder / EVENTS, self.events)


def entry(key: str | None, plan: Plan, placement: Mapping[str, str], events: Sequence[Event]) -> Entry | None:
    """The entry for what became of a graph. None without a key, and for what a fault decided: that is tried anew."""
    if key is None or any(event.dead_end is DeadEnd.MAINTENANCE for event in events):
        return None
    looked = checks(plan.graph)
    numbers = {check.key: (node.name, at) for node, found in looked.items() for at, check in enumerate(found)}
    content = {
        "placement": dict(placement),
        "ways": plan.ways,
        "strides": plan.strides,
        "into": plan.into,
        "checks": {name: [found, *numbers[check.key]] for name, (found, check) in plan.checks.items()},
    }
    return Entry(key, content, tuple(events))


def find(key: str, graph: Graph) -> Found | None:
    """What became of an equal graph before. None if nobody kept it, or its kernels are gone."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    try:
        if not users_cache().fetch(key, folder):
            return None
        content = json.loads((folder / PLAN).read_text())
        events = read(folder / EVENTS).events
        plan = _plan(graph, content)
        return Found(plan, loaded(folder, graph.device), content["placement"], tuple(_told(graph, events)))
    except (KeyError, ValueError, LedgerFormatError):
        users_cache().drop(key)
        return None
    finally:
        shutil.rmtree(folder)


def _plan(graph: Graph, content: Mapping[str, Any]) -> Plan:
    looked = {node.name: found for node, found in checks(graph).items()}
    return Plan(
        graph,
        {name: tuple(strides) for name, strides in content["strides"].items()},
        {name: Way(way) for name, way in content["ways"].items()},
        constants_of(graph),
        content["into"],
        {name: (found, looked[node][at]) for name, (found, node, at) in content["checks"].items()},
    )


def _told(graph: Graph, events: Sequence[Event]) -> list[Event]:
    """The events, as they are of this graph."""
    lines = {node.name: node for node in graph.nodes}
    return [replace(e, graph=graph.name, source=source_line(lines[e.node]) if e.node else e.source) for e in events]


@cache
def _surroundings() -> list[str]:
    """Our own code, the packages, and the machine."""
    package = Path(__file__).parents[2]
    code = [code_digest(folder.resolve()) for folder in (package, package / "frontends", package / "backends")]
    packages = [str(installed(name)) for name in ("torch", "tvm", "tvm_ffi")]
    return [*code, *packages, torch.__version__, sys.version, cpu_name()]


def cpu_name() -> str:
    """What kernels are compiled for: the processor's name and what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith(("model", "flags", "Features", "CPU", "cpu family", "stepping"))]
    return "\n".join([*platform.uname()[4:], *told])


def _has_foreign_rows() -> bool:
    """Whether somebody entered rows of his own: what they do, no text tells."""
    tables: Any = sys.modules.get("bridge.backends.tvm.table")
    if tables is None:
        return False
    places = [*(row.place for row in tables.TABLE.values()), *(place for _, _, place in tables.awaited.values())]
    return not all(f"{__package__}.{place.rpartition('.')[0]}" in sys.modules for place in places)
