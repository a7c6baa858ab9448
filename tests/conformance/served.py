"""What the sweep's test serves: entries that are fine, crash and hang by their name."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

from bridge.ledger import Measure, Placement, Way
from bridge.ledger.jsonl import write
from bridge.runtime.worker import serve


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Do what the entry is named after."""
    name = request["name"]
    if name == "crash":
        ctypes.string_at(0)
    if name == "hang":
        time.sleep(600)
    write(
        Path(request["file"]), [Placement("many", Way.GENERATED, 1, model=name), Measure("samples", (1, 1), model=name)]
    )
    return {}


if __name__ == "__main__":
    serve(handle)
