"""The dry run of one target, in a process of its own: python -m bridge.cli.measure TARGET FILE OPTIONS-AS-JSON."""

from __future__ import annotations

import json
import sys

import bridge
from bridge.cli.targets import NOT_THERE, load
from bridge.errors import UnknownModel
from bridge.ledger.jsonl import write


def main(text: str, file: str, options: str) -> int:
    """Write the records of a target to a file."""
    try:
        target = load(text)
    except UnknownModel as error:
        print(error, file=sys.stderr)
        return NOT_THERE
    found = bridge.coverage(target.model, *target.args, loss_fn=target.loss_fn, **json.loads(options), **target.kwargs)
    write(file, found.records(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
