"""Single kernels of four million elements against eager, Inductor and what the memory can carry.

    python -m experiments.benchmark.kernels

A pointwise kernel that reads and writes each element once is as fast as a copy of as many bytes at best.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from rich.progress import Progress
from torch.nn import functional as F

import bridge
from bridge.demo.timing import interleaved, machine
from bridge.ledger import Measure, Record
from bridge.ledger.jsonl import write

RESULTS = Path(__file__).parent / "results"
ROWS, COLUMNS = 4096, 1024
ROUNDS = 20

Kernel = Callable[[torch.Tensor], torch.Tensor]

KERNELS: dict[str, Kernel] = {
    "add and multiply": lambda x: x * 2 + 1,
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softmax": lambda x: F.softmax(x, -1),
    "log softmax": lambda x: F.log_softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "rms norm": lambda x: F.rms_norm(x, (x.shape[-1],)),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "layer norm, gelu": lambda x: F.gelu(F.layer_norm(x, (x.shape[-1],))),
    "row sum": lambda x: x.sum(1),
    "column sum": lambda x: x.sum(0),
    "transposed": lambda x: (x.t() + 1).contiguous(),
}


def forward_and_backward(function: Kernel, x: torch.Tensor) -> tuple[Callable[[], object], Callable[[], object]]:
    """A call without gradients, and a backward of one that has been made."""

    def forward() -> None:
        with torch.no_grad():
            function(x.detach())

    leaf = x.detach().requires_grad_()
    result = function(leaf)
    gradient = torch.randn_like(result)

    def backward() -> None:
        torch.autograd.grad(result, leaf, gradient, retain_graph=True)

    return forward, backward


def measured(name: str, function: Kernel) -> list[Record]:
    """Seconds of the forward and of the backward on each target, and bytes a second of a copy between them."""
    x = torch.randn(ROWS, COLUMNS)
    to = torch.empty_like(x)
    targets: dict[str, Kernel] = {
        "eager": function,
        "inductor": torch.compile(function, dynamic=False),
        "bridge": bridge.compile(function, dynamic=False),
    }
    both = {target: forward_and_backward(made, x) for target, made in targets.items()}
    records: list[Record] = []
    for number, phase in enumerate(("forward", "backward")):
        calls: dict[str, Callable[[], object]] = {target: pair[number] for target, pair in both.items()}
        times = interleaved({**calls, "copy": lambda: to.copy_(x)}, ROUNDS)
        records += [Measure(f"{phase} kernel", readings, "s", target, name) for target, readings in times.items()]
    return records


def main() -> None:
    records: list[Record] = []
    with Progress() as progress:
        for name, function in progress.track(KERNELS.items(), description="kernels"):
            torch._dynamo.reset()
            records += measured(name, function)
    about = {"command": "python -m experiments.benchmark.kernels", "shape": f"{ROWS} × {COLUMNS}, float32", **machine()}
    write(RESULTS / "kernels.jsonl.gz", records, about)


if __name__ == "__main__":
    main()
