"""A graph after the pipeline: what runs it, and which way each of its nodes runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.ir.joint import Boxed, Graph
from bridge.ledger import Way

__all__ = ["CallOut", "CompiledGraph", "Tuned", "Way"]


@dataclass(frozen=True)
class CallOut:
    """One call from a program to ATen.

    ops: how often each ATen overload ("aten.mm.default") is dispatched by one run of the call-out.
    """

    node: str
    way: Way
    ops: Mapping[str, int]
    source: str = ""


@dataclass(frozen=True)
class Tuned:
    """What a search for a better schedule of one kernel came to.

    calls: how often one run of the program calls it. why: the reason for which it was not searched for. trials:
    schedules that were proposed. seconds: of the search. ours, found: of one run of the kernel by rules and of the
    best that was found. ratio: how many times as quick that one is, with its quartiles. by: who proposed it. ratios: of
    the best of each who proposed. chosen: whether the program calls it.
    """

    kernel: str
    nodes: tuple[str, ...]
    calls: int
    why: str = ""
    trials: int = 0
    seconds: float = 0.0
    ours: float = 0.0
    found: float = 0.0
    ratio: float = 0.0
    spread: tuple[float, float] = (0.0, 0.0)
    by: str = ""
    ratios: Mapping[str, float] = field(default_factory=dict)
    chosen: bool = False


@dataclass(frozen=True)
class CompiledGraph:
    """What the pipeline makes of a graph.

    placement: how each computing node runs, by node name; placeholders, the output, picks from a tuple and size
        arithmetic are no computing nodes.
    run: the program, boxed. source: its text.
    kernel_calls: generated kernels that one run calls. callouts: the ATen calls that it makes.
    runs: a counter of one element, which the program adds to each time it runs.
    seconds: by node, what its last call of ATen took, where a run measures it.
    tuned: what a search came to, kernel by kernel, where one was asked for.
    """

    graph: Graph
    placement: Mapping[str, Way]
    run: Boxed
    source: str
    kernel_calls: int
    callouts: tuple[CallOut, ...]
    runs: list[int] = field(default_factory=lambda: [0])
    seconds: dict[str, float] = field(default_factory=dict)
    tuned: tuple[Tuned, ...] = ()
