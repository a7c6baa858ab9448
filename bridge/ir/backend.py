"""What a backend is, and how it says no."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import fx

from bridge.ledger import DeadEnd


@dataclass(frozen=True)
class Refusal:
    """A backend's answer that it does not take a node, with the reason in words."""

    dead_end: DeadEnd
    detail: str
    kind: str = ""


class Backend(Protocol):
    """What takes nodes. `accepts` is asked once a node and is cheap; `build` gives a callable over the node's tensors."""

    name: str

    def accepts(self, node: fx.Node) -> Refusal | None: ...

    def build(self, node: fx.Node) -> Callable[..., Any]: ...
