"""What capture tells the ledger: all that torch otherwise keeps to its logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from bridge.frontends.torch.adapters.base import GraphBreak
from bridge.frontends.torch.aliasing import linked_results
from bridge.frontends.torch.roles import FrameInput, mutations
from bridge.ir.joint import Graph, JointGraph, Phase
from bridge.ir.nodes import shapes_and_dtypes
from bridge.ir.provenance import code_line, frame_line, is_own, source_line
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.ledger.event import COPIED_BACK

_ABOUT_SIZES = re.compile(r"size mismatch|stride mismatch|size\(\)|stride\(\)|storage_offset\(\)|dynamic")
_OF_ANOTHER_MODULE = re.compile(r"_parameters\[|failed on a parameter")
"""The code of a module's class is shared: a weight of another size is another module's, and no size has changed."""
_OF_ANOTHER_COMPILATION = re.compile("BACKEND_MATCH|different backend")
_PACKAGES = re.compile(r"[^\s\"'`(]*/(?:site|dist)-packages/")
"""Where packages are installed, which differs from machine to machine."""


class CaptureRecord:
    """Listens to Dynamo and to capture, and writes events. What Dynamo says in several pieces is put together here."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.breaks: Counter[str] = Counter()
        self._reasons: list[str] = []
        self._told: set[tuple[Any, ...]] = set()
        self._graphs = 0

    def frame_begun(self, breaks: Counter[str]) -> None:
        self.breaks = breaks
        self._graphs = 0

    def guard_failed(self, reason: str) -> None:
        """The reason is kept until it is known what comes of it."""
        if not _OF_ANOTHER_COMPILATION.search(reason):
            self._reasons.append(_first_lines(reason))

    def switched_off(self) -> None:
        detail = "Dynamo is switched off in this process: unset TORCHDYNAMO_DISABLE"
        self._uncaptured(DeadEnd.COVERAGE, "call", detail)

    def limit_reached(self, frame: Any) -> None:
        reason = self._reasons[0] if self._reasons else "not told"
        self._reasons.clear()
        detail = f"compiled too often, new sizes run in eager from now on; the last reason: {reason}"
        self._uncaptured(DeadEnd.DYNAMIC_SHAPE, "recompile limit", detail, source=code_line(frame.f_code))

    def frame_skipped(self, frame: Any, reason: str) -> None:
        """A frame of torch's own runs as Python by design; what computes there is a module without children."""
        self._reasons.clear()
        module = frame.f_locals.get("self")
        leaf = isinstance(module, torch.nn.Module) and frame.f_code.co_name == "forward" and not list(module.children())
        if leaf or is_own(frame.f_code.co_filename):
            op = type(module).__name__ if leaf else "call"
            self._uncaptured(DeadEnd.COVERAGE, op, reason, source=code_line(frame.f_code))

    def frame_broken(self, frame: Any, reason: str) -> None:
        """Where a graph was made, it was told with it. Our own frame only calls the user's, which tells of itself."""
        if not self._graphs and not is_own(frame.f_code.co_filename):
            self._uncaptured(DeadEnd.COVERAGE, "graph break", reason, source=code_line(frame.f_code))

    def frame_failed(self, frame: Any, error: Exception) -> None:
        """Dynamo's own fault costs the frame, which runs as Python."""
        self._reasons.clear()
        detail = f"Dynamo failed on the frame: {error}"
        self._uncaptured(DeadEnd.API_INSTABILITY, "frame", detail, source=code_line(frame.f_code))

    def graph_broken(self, graph: str, broken: GraphBreak) -> None:
        """The function goes on as Python after the graph, at the user's line."""
        self._uncaptured(DeadEnd.COVERAGE, "graph break", broken.reason, graph=graph, source=frame_line(broken.frames))

    def left_out(self, graph: str, reason: str, module: fx.GraphModule) -> None:
        """A graph of Dynamo's runs op by op, since AOTAutograd would give a wrong result."""
        calls = [node for node in module.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
        source = source_line(calls[-1]) if calls else ""
        detail = f"{reason}: AOTAutograd would give a wrong result, so the graph runs op by op in eager"
        self._uncaptured(DeadEnd.API_INSTABILITY, "graph", detail, graph=graph, source=source, count=len(calls))

    def recompiled(self, graph: str) -> None:
        """Compiling a frame again for new sizes is a dead end; for another mode, type or branch it is a new program."""
        self._graphs += 1
        reasons, self._reasons = [r for r in self._reasons if not _OF_ANOTHER_MODULE.search(r)], []
        if reasons and _ABOUT_SIZES.search(reasons[0]):
            event = Event(DeadEnd.DYNAMIC_SHAPE, op="frame", detail=reasons[0], kind="recompiled", graph=graph)
            self._ledger.record(event)

    def mutated(self, graph: Graph, frame: Sequence[FrameInput]) -> None:
        """AOTAutograd copies the new values of mutated inputs back after the graph."""
        for change in mutations(graph.module, frame):
            shapes, dtypes = shapes_and_dtypes([change.node.meta["val"]])
            self._ledger.record(
                Event(
                    DeadEnd.INPLACE_OPTIMIZER,
                    op=change.name or change.role.value,
                    detail=f"the {change.role.value} is changed in place: its new value is copied back after the graph",
                    kind=COPIED_BACK,
                    graph=graph.name,
                    phase=graph.phase.value,
                    shapes=shapes,
                    dtypes=dtypes,
                    bytes=change.bytes,
                    source=source_line(change.node),
                    node=change.node.name,
                )
            )

    def linked(self, joint: JointGraph) -> None:
        """The gradient of one result by another is lost, and torch gives None for it."""
        found = linked_results(joint)
        if found is None:
            return
        later, earlier = found
        detail = f"{later.name} is computed from {earlier.name}, and both are results of one graph: the gradient of "
        detail += "the one by the other is None; compile the two parts apart to take it"
        self._ledger.record(
            Event(
                DeadEnd.API_INSTABILITY,
                op="autograd.grad",
                detail=detail,
                kind="gradient between results",
                graph=joint.name,
                phase=joint.phase.value,
                source=source_line(later),
                node=later.name,
            )
        )

    def _uncaptured(
        self, dead_end: DeadEnd, op: str, detail: str, graph: str = "", source: str = "", count: int = 1
    ) -> None:
        """What no graph holds. Dynamo says the same of a frame again and again: it is told once."""
        detail = _first_lines(detail)
        if (op, detail, source) not in self._told:
            self._told.add((op, detail, source))
            event = Event(
                dead_end,
                op,
                detail,
                kind="uncaptured",
                graph=graph,
                phase=Phase.FORWARD.value,
                backend="eager",
                count=count,
                source=source,
            )
            self._ledger.record(event)


def _first_lines(text: str, length: int = 300) -> str:
    """A reason of torch's on one line, without the pages of advice that follow it and the folders of packages."""
    kept = " ".join(line.strip() for line in _PACKAGES.sub("", text).splitlines()[:4] if line.strip())
    return kept if len(kept) <= length else kept[: length - 1] + "…"
