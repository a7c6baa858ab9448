"""A new value that no kernel writes over the old one is copied there, and the ledger is told."""

from __future__ import annotations

import torch
from torch import fx

from bridge.ir.joint import Graph
from bridge.ir.nodes import op_name, shapes_and_dtypes
from bridge.ir.provenance import source_line
from bridge.ledger import DeadEnd, Event
from bridge.ledger.event import COPIED_BACK


def copied_back(target: torch.Tensor, value: torch.Tensor) -> None:
    """Write a new value over an input's old one."""
    target.detach().copy_(value)


def copy_event(graph: Graph, value: fx.Node, target: fx.Node) -> Event:
    """A new value that no kernel writes in its place."""
    tensor = target.meta["val"]
    shapes, dtypes = shapes_and_dtypes([tensor])
    known = all(isinstance(size, int) for size in tensor.shape)
    names = dict(zip([n for n in graph.nodes if n.op == "placeholder"], graph.input_names))
    return Event(
        DeadEnd.INPLACE_OPTIMIZER,
        op=names.get(target) or target.name,
        detail=f"{op_name(value)} gives the new value in memory of its own, which is copied back",
        kind=COPIED_BACK,
        graph=graph.name,
        phase=graph.phase.value,
        shapes=shapes,
        dtypes=dtypes,
        bytes=tensor.nbytes if known else 0,
        source=source_line(value),
        node=value.name,
    )
