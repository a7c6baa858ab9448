"""Train PyTorch models through TVM's Relax IR, and keep a ledger of every node that ran elsewhere.

Names are loaded on first use, so that `import bridge` needs neither torch nor TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.api import audit, compile, coverage, inspect
    from bridge.ledger import DeadEnd, Event, Ledger
    from bridge.options import Options
    from bridge.step import compile_step

__version__ = "0.1.0"

_HOME = {
    "compile": "bridge.api",
    "compile_step": "bridge.step",
    "coverage": "bridge.api",
    "inspect": "bridge.api",
    "audit": "bridge.api",
    "Options": "bridge.options",
    "DeadEnd": "bridge.ledger",
    "Event": "bridge.ledger",
    "Ledger": "bridge.ledger",
}

__all__ = ["DeadEnd", "Event", "Ledger", "Options", "audit", "compile", "compile_step", "coverage", "inspect"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bridge' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
