"""A graph after the pipeline: what runs it, and which way each of its nodes runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.ir.joint import Boxed, Graph
from bridge.ledger import Way

__all__ = ["CallOut", "CompiledGraph", "Way"]


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
class CompiledGraph:
    """What the pipeline makes of a graph.

    placement: how each computing node runs, by node name; placeholders, the output, picks from a tuple and size
        arithmetic are no computing nodes.
    run: the program, boxed. source: its text.
    kernel_calls: generated kernels that one run calls. callouts: the ATen calls that it makes.
    runs: a counter of one element, which the program adds to each time it runs.
    seconds: by node, what its last call of ATen took, where a run measures it.
    """

    graph: Graph
    placement: Mapping[str, Way]
    run: Boxed
    source: str
    kernel_calls: int
    callouts: tuple[CallOut, ...]
    runs: list[int] = field(default_factory=lambda: [0])
    seconds: dict[str, float] = field(default_factory=dict)
