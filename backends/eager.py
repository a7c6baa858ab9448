"""Eager: runs any node as the ATen call that it is. The end of every order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from bridge.ir.callout import callout


class Eager:
    """Takes every node."""

    name = "eager"

    def accepts(self, node: fx.Node) -> None:
        return None

    def build(self, node: fx.Node) -> tuple[Callable[..., Any], dict[str, int]]:
        return callout(node)
