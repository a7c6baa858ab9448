"""Times one model in a process of its own: python -m bridge.bench.process TARGET FILE OPTIONS-AS-JSON.

Options: "cache", the folder where compilers keep what they build; "rounds" of steady steps, 0 for the first step alone;
"name", by which the records call the model.
"""

from __future__ import annotations

import json
import os
import sys

from bridge.cli.targets import NOT_THERE, load
from bridge.errors import UnknownModel
from bridge.ledger import Measure
from bridge.ledger.jsonl import write


def main(text: str, file: str, options: str) -> int:
    """Write what was measured of a target to a file."""
    told = json.loads(options)
    os.environ["BRIDGE_CACHE_DIR"] = os.path.join(told["cache"], "bridge")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(told["cache"], "inductor")
    try:
        target = load(text)
    except UnknownModel as error:
        print(error, file=sys.stderr)
        return NOT_THERE
    from bridge.bench.step import Stepped
    from bridge.runtime.step import summed

    stepped = Stepped(target.model, target.args, target.kwargs, target.loss_fn or summed)
    if told["rounds"]:
        write(file, stepped.measures(told["name"], told["rounds"]))
    else:
        first = stepped.first.items()
        write(file, [Measure("first step, warm", (seconds,), "s", target, told["name"]) for target, seconds in first])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
