"""What a program does to a tensor that does not lie in memory as its kernels were told, and the GPU that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from bridge.backends.tvm.lowered import Plan
from bridge.ir.joint import Boxed
from bridge.ir.nodes import op_name, shapes_and_dtypes
from bridge.ir.provenance import source_line
from bridge.ledger import DeadEnd, Event, Ledger


class Copier:
    """Copies an input or a call-out's result to where kernels can read it. The first copy is an event."""

    def __init__(self, node: fx.Node, plan: Plan, ledger: Ledger) -> None:
        self._node, self._graph, self._ledger = node, plan.graph, ledger
        self._told = False

    def lay_out(self, tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        """The tensor with the strides that were captured; one without elements has none to be read by."""
        unlike = [n for a, b, n in zip(tensor.stride(), strides, tensor.shape, strict=True) if a != b]
        if not tensor.numel() or all(n < 2 for n in unlike):
            return tensor.as_strided(tensor.shape, strides)
        return self._copied(tensor, strides, f"has strides {tensor.stride()} where {strides} were captured")

    def align(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in memory of its own, which begins where torch's allocator lets it."""
        return self._copied(tensor, tensor.stride(), "begins where no patch of 16 bytes does")

    def _copied(self, tensor: torch.Tensor, strides: tuple[int, ...], reason: str) -> torch.Tensor:
        if not self._told:
            self._told = True
            self._ledger.record(self._event(tensor, reason))
        return tensor.new_empty_strided(tuple(tensor.shape), strides).copy_(tensor)

    def _event(self, tensor: torch.Tensor, reason: str) -> Event:
        shapes, dtypes = shapes_and_dtypes([tensor])
        return Event(
            DeadEnd.MAINTENANCE,
            op=op_name(self._node),
            detail=f"the tensor {reason}: copied at each run",
            kind="laid out anew",
            graph=self._graph.name,
            phase=self._graph.phase.value,
            shapes=shapes,
            dtypes=dtypes,
            bytes=tensor.numel() * tensor.element_size(),
            source=source_line(self._node),
            node=self._node.name,
        )


def written_out(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor in memory of its own, which lies as the tensor does."""
    written = tensor.new_empty_strided(tuple(tensor.shape), tensor.stride())
    once = tuple(slice(1) if stride == 0 else slice(None) for stride in tensor.stride())
    written[once].copy_(tensor[once])
    return written


def on_its_device(run: Boxed, device: torch.device) -> Boxed:
    """The program, run while its GPU is the current one, and that of before is afterwards."""
    if device.type == "cpu":
        return run

    def call(args: list[Any]) -> Sequence[Any]:
        if torch.cuda.current_device() == device.index:
            return run(args)
        with torch.cuda.device(device):
            return run(args)

    return call
