"""TVM as a backend: what it is asked while nodes are placed. How its nodes are built is the program's affair."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from bridge.backends.tvm.refuse import refusal
from bridge.ir.backend import Refusal
from bridge.ir.nodes import op_name
from bridge.ledger import DeadEnd


class Tvm:
    """Takes the nodes that a row converts, but for those whose overload is named in `denied`.

    device: where the graph's kernels run; what it computes elsewhere goes to others.
    """

    name = "tvm"

    def __init__(self, denied: Collection[str] = (), device: torch.device | None = None) -> None:
        self._denied = frozenset(denied)
        self._device = device or torch.device("cpu")

    def accepts(self, node: fx.Node) -> Refusal | None:
        if op_name(node) in self._denied:
            return Refusal(DeadEnd.COVERAGE, f"{op_name(node)} is denied by the options", "denied")
        return refusal(node, self._device)
