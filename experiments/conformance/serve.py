"""The process that runs entries one after the other, as `run` asks for them; it may crash or hang of any."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from bridge.ledger.jsonl import write
from bridge.runtime.worker import serve
from experiments.conformance.entry import outcome


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """The records of an entry, in the file that the request names."""
    dtype = getattr(torch, request["dtype"])
    write(Path(request["file"]), outcome(request["name"], dtype, request["samples"], request["symbolic"]))
    return {}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")  # torch's own, of what its samples are made with
    torch.set_num_threads(1)
    serve(handle)
