"""A tuner that uses whatever it finds, quicker or not; or that ends like a segmentation fault, as BRIDGE_FAULT says."""

from __future__ import annotations

import os
import signal
from typing import Any

from bridge.backends.tvm.tune import measure, work
from bridge.runtime.worker import serve

_search = work.search


def search(*arguments: Any) -> Any:
    """The search, but for the fault."""
    if os.environ.get("BRIDGE_FAULT") == "search":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    return _search(*arguments)


measure.BETTER = 0.0
work.search = search

if __name__ == "__main__":
    serve(work.handle)
