"""What the worker's tests serve: a child that answers, prints, fails, crashes and hangs as it is asked to."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import bridge
from bridge.runtime.worker import block_import, serve

print("printed on import")


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Do what `request["do"]` says."""
    match request["do"]:
        case "echo":
            print("printed by python", flush=True)
            os.write(1, b"printed by a library\n")
            return {"pid": os.getpid(), "said": request["say"]}
        case "where":
            return {"bridge": bridge.__file__, "path": sys.path, "main": sys.modules["__main__"].__name__}
        case "fail":
            raise ValueError(f"no such op: {request['op']}")
        case "segfault":
            os.write(2, b"LLVM ERROR: about to die\n")
            ctypes.string_at(0)
        case "signal":
            os.kill(os.getpid(), signal.Signals[request["name"]])
        case "exit":
            os._exit(3)
        case "wait":
            while not Path(request["file"]).exists():
                time.sleep(0.01)
            return {"came": True}
        case "hang":
            Path(request["file"]).write_text(str(os.getpid()))
            time.sleep(600)
        case "unanswerable":
            return {"value": object()}
        case "import torch":
            block_import("torch")
            import torch

            return {"torch": torch.__version__}
    return {}


if __name__ == "__main__":
    serve(handle)
