"""The errors that a user can meet. Each names the op or the option, the user's line, and the next step to take."""

from __future__ import annotations


class BridgeError(Exception):
    """Base of every error that the bridge raises on purpose."""


class UnknownTarget(BridgeError, ValueError):
    """The target is neither one of ours nor one that TVM knows."""


class BadOption(BridgeError, ValueError):
    """An option has a value that it cannot have."""


class NotCompilable(BridgeError, TypeError):
    """What was handed to `bridge.compile` is neither a module nor a function, or cannot be wrapped."""


class LedgerFormatError(BridgeError, ValueError):
    """A ledger file is not one of ours, is cut off, or was written by a newer version."""


class WorkerFailure(BridgeError, RuntimeError):
    """The compiler's worker process died, hung or answered with an error."""
