"""The process that tries one overload after the other, as `run` asks for them; an importer may end it or hold it up."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from bridge.backends.tvm.table import overload_of
from bridge.conformance.importers import importer
from bridge.conformance.trials import trials
from bridge.ledger.jsonl import write
from bridge.runtime.worker import serve


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """The trials of an overload, in the file that the request names."""
    op, name = overload_of(request["op"]), request["importer"]
    assert op is not None
    write(Path(request["file"]), trials(op, name, importer(name)))
    return {}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")  # torch's own, of what its samples are made with
    torch.set_num_threads(1)
    serve(handle)
