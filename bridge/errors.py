"""The errors that a user can meet. Each names the op or the option, the user's line, and the next step to take."""

from __future__ import annotations

from typing import Literal


class BridgeError(Exception):
    """Base of every error that the bridge raises on purpose."""


class UnknownTarget(BridgeError, ValueError):
    """The target is neither one of ours nor one that TVM knows."""


class BadOption(BridgeError, ValueError):
    """An option has a value that it cannot have."""


class WrongVersion(BridgeError, ImportError):
    """A package is of a version with which TVM ends the process."""


class NotCompilable(BridgeError, TypeError):
    """What was handed to `bridge.compile` is neither a module nor a function, or cannot be wrapped."""


class UnknownModel(BridgeError, ValueError):
    """What `bridge coverage` is to look at is not there, or gives no model with its arguments."""


class LedgerFormatError(BridgeError, ValueError):
    """A ledger file is not one of ours, is cut off, or was written by a newer version."""


class WorkerFailure(BridgeError, RuntimeError):
    """The compiler's worker process did not do what it was asked.

    kind: "died" (a signal or an exit), "hung" (no answer in time, killed) or "error" (it answered that it failed).
    detail: the signal and the last lines of stderr, the seconds waited, or the worker's own message.
    """

    def __init__(self, kind: Literal["died", "hung", "error"], detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"the compiler's worker {'failed' if self.kind == 'error' else self.kind}: {self.detail}"
