"""One recorded fact: something did not run in TVM, or did not run as planned."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class DeadEnd(StrEnum):
    """The five reasons for which it is common wisdom that TVM cannot be used for training."""

    COVERAGE = "coverage"
    DYNAMIC_SHAPE = "dynamic_shape"
    API_INSTABILITY = "api_instability"
    INPLACE_OPTIMIZER = "inplace_optimizer"
    MAINTENANCE = "maintenance"


COPIED_BACK = "copied back"
"""The kind of the events for what changes in place; their `op` is the name of the input, parameter or buffer."""


@dataclass(frozen=True)
class Event:
    """What happened, why, where in the user's program, and what it cost.

    op: the ATen overload ("aten.sort.default"), or the name of what it is about (a package, a buffer).
    detail: the reason in words.
    kind: a finer class within the dead end ("no row", "row refuses", "dtype", "build failed", "copied back", ...).
    graph, phase: which graph ("graph_0") and "forward", "backward", "joint", "step", "optimizer" or "inference".
    backend: who took the node instead; "" where nothing took anything.
    count: how many nodes or times. bytes: of data copied or moved. seconds: of time lost, where it was measured.
    source: the user's own line, "model.py:12 in forward: y = torch.sort(x)".
    node: the name of the node in the graph, "" where there is none.
    call: the node as Python, "torch.ops.aten.topk.default(x0, 3)", where x0, x1 … have the shapes and dtypes above.
    sizes: the shapes as they were at capture, where a size is a symbol.
    model: the name of the model, in a file that holds several.
    """

    dead_end: DeadEnd
    op: str
    detail: str
    kind: str = ""
    graph: str = ""
    phase: str = ""
    backend: str = ""
    count: int = 1
    shapes: tuple[tuple[int | str, ...], ...] = field(default=())
    dtypes: tuple[str, ...] = field(default=())
    bytes: int = 0
    seconds: float = 0.0
    source: str = ""
    node: str = ""
    model: str = ""
    call: str = ""
    sizes: tuple[tuple[int | str, ...], ...] = field(default=())

    @property
    def subject(self) -> str:
        """What the event is alike to others in: the op; of a buffer its name in whichever module holds it."""
        return self.op.rpartition(".")[2] if self.kind == COPIED_BACK else self.op
