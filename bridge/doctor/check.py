"""What `bridge doctor` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a thing was found. NOTE: otherwise than recorded, or absent, and nothing is broken by it."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True)
class Check:
    """One thing looked at. detail: what was found. remedy: what to do about it."""

    group: str
    name: str
    state: State
    detail: str
    remedy: str = ""
