"""A worker whose TVM crashes or hangs on `tanh`, as BRIDGE_FAULT says: in a pass, in code generation, or for ever."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from bridge.runtime.worker import block_import, serve

if __name__ == "__main__":
    block_import("torch")

from tvm import relax

from bridge.backends.tvm import work

FAULT = os.environ.get("BRIDGE_FAULT", "")
_legalise, _compiled = relax.transform.LegalizeOps, work.compiled


def crash() -> None:
    """End as a segmentation fault does, without a trace of Python's."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def legalise() -> Any:
    """LegalizeOps, but for the fault."""

    def run(module: Any) -> Any:
        if "R.tanh" in module.script() and FAULT in ("pass", "hang"):
            crash() if FAULT == "pass" else time.sleep(1000)
        return _legalise()(module)

    return run


def compiled(functions: dict[str, Any], target: Any) -> Any:
    """Code generation, but for the fault."""
    if FAULT == "codegen" and any("tanh" in name for name in functions):
        crash()
    return _compiled(functions, target)


relax.transform.LegalizeOps = legalise
work.compiled = compiled

if __name__ == "__main__":
    serve(work.handle)
