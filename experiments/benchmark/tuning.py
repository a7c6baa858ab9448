"""Our rules for schedules against the best that TVM's MetaSchedule finds, kernel by kernel, forward and backward.

    python -m experiments.benchmark.tuning --seconds 30

A search of so many seconds is made for each graph; both kernels of a line ran by turns. What is in the file already is
not run again, so that a run can be broken off and gone on with; --anew starts from nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

import bridge
from bridge.demo.timing import machine

RESULTS = Path(__file__).parent / "results" / "tuning.jsonl"
ROWS, COLUMNS = 2048, 1024
BETTER = 1.05

Function = Callable[[torch.Tensor], torch.Tensor]


def parameter(value: float) -> torch.Tensor:
    """A weight or a bias of a layer."""
    return torch.full((COLUMNS,), value, requires_grad=True)


WEIGHT, BIAS = parameter(1.1), parameter(0.1)
TARGET = torch.arange(ROWS) % COLUMNS

FUNCTIONS: dict[str, Function] = {
    "add and multiply": lambda x: x * 2 + 1,
    "gelu of a sum": lambda x: F.gelu(x + BIAS) * 0.5,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu and gate": lambda x: F.silu(x) * (x + 1),
    "softmax": lambda x: F.softmax(x, -1),
    "log softmax": lambda x: F.log_softmax(x, -1),
    "cross entropy": lambda x: F.cross_entropy(x, TARGET),
    "layer norm": lambda x: F.layer_norm(x, (COLUMNS,), WEIGHT, BIAS),
    "rms norm": lambda x: F.rms_norm(x, (COLUMNS,), WEIGHT),
    "batch norm": lambda x: F.batch_norm(x, None, None, WEIGHT, BIAS, training=True),
    "bias": lambda x: x + BIAS,
    "row sum": lambda x: x.square().sum(1),
    "column sum": lambda x: x.square().sum(0),
    "transposed": lambda x: (x.t() + 1).contiguous(),
}


def lines_of(name: str, seconds: float) -> Iterator[dict[str, Any]]:
    """What the searches for one function's kernels came to."""
    torch._dynamo.reset()
    x = torch.randn(ROWS, COLUMNS, requires_grad=True)
    compiled = bridge.compile(FUNCTIONS[name], dynamic=False, tune=seconds)
    result = compiled(x)
    result.backward(torch.randn_like(result))
    for graph in bridge.inspect(compiled).graphs:
        for one in graph.tuned:
            yield {
                **{"function": name, "phase": graph.graph.phase.value, "kernel": one.kernel, "asked": seconds},
                **{"trials": one.trials, "seconds": round(one.seconds, 1), "chosen": one.chosen, "why": one.why},
                **{"rules_us": round(1e6 * one.ours, 2), "found_us": round(1e6 * one.found, 2)},
                **{"by": one.by, "ratios": {by: round(ratio, 3) for by, ratio in one.ratios.items()}},
                **{"ratio": round(one.ratio, 3), "quartiles": [round(q, 3) for q in one.spread]},
            }


def known(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, the first of which says what it is about; none, if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(lines: list[dict[str, Any]]) -> Table:
    """The kernels for which something was found."""
    made = Table(title="Rules against MetaSchedule")
    for heading in ("function", "phase", "kernel", "rules, µs", "found, µs", "as quick", "quartiles", "tried"):
        made.add_column(heading)
    for line in lines:
        low, high = line["quartiles"]
        told = (line["function"], line["phase"], line["kernel"], line["rules_us"], line["found_us"], line["ratio"])
        made.add_row(*map(str, told), f"{low}–{high}", str(line["trials"]))
    return made


def summary(lines: list[dict[str, Any]]) -> str:
    """How often each who proposes is at least 1.05 times as quick as our rules, and by how much."""
    ran = [line for line in lines if line["rules_us"]]
    told = [f"{len(ran)} kernels were run, {len(lines) - len(ran)} were not"]
    for by in sorted({by for line in ran for by in line["ratios"]}):
        won = [line["ratios"][by] for line in ran if line["ratios"].get(by, 0) >= BETTER]
        much = f", by {median(won):.2f} in the median and {max(won):.2f} at most" if won else ""
        told.append(f"{by}: {len(won)} became quicker{much}")
    return "\n".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30, help="of the search for one graph")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="*", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--anew", action="store_true", help="forget what the file holds")
    options = parser.parse_args()
    lines = [] if options.anew else known(options.results)
    if not lines:
        command = f"python -m experiments.benchmark.tuning --seconds {options.seconds:g}"
        lines = [{"command": command, "shape": f"{ROWS} × {COLUMNS}, float32", **machine()}]
    for name in options.only:
        if all(line.get("function") != name for line in lines):
            lines += lines_of(name, options.seconds)
            options.results.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    console = Console()
    console.print(table([line for line in lines[1:] if line["found_us"]]))
    console.print(summary(lines[1:]))


if __name__ == "__main__":
    main()
