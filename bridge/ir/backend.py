"""What a backend is, and how it says no."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import fx

from bridge.ledger import DeadEnd


@dataclass(frozen=True)
class Refusal:
    """A backend's answer that it does not take a node, with the reason in words.

    kind: a finer class within the dead end, as in `Event.kind`.
    """

    dead_end: DeadEnd
    detail: str
    kind: str = ""


class Asked(Protocol):
    """What can be asked whether it takes a node. It is asked once a node, and answering is cheap."""

    @property
    def name(self) -> str: ...

    def accepts(self, node: fx.Node) -> Refusal | None: ...


class Backend(Asked, Protocol):
    """What runs the nodes that TVM does not: each as one call-out."""

    def build(self, node: fx.Node) -> tuple[Callable[..., Any], Mapping[str, int]]:
        """The node as a function of the values of `callout_inputs(node)`, and which overloads one call dispatches."""
        ...
