"""What a call costs the host: one kernel on small tensors, and a step of a small MLP above a backend that does nothing.

    python -m experiments.host_overhead.run

At these sizes the arithmetic takes no time to speak of, so what is timed is Python, guards, wrappers and allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.progress import Progress
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd

import bridge
from bridge.demo.timing import interleaved, machine
from bridge.ledger import Measure, Record
from bridge.ledger.jsonl import write

RESULTS = Path(__file__).parent / "results"
CALLS = 200
ROUNDS = 60


def nothing_compiled(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """A program that computes nothing: it gives what the graph gave when it was first run."""
    held: list[Any] = []

    def run(args: list[Any]) -> Any:
        if not held:
            held.append(module(*args))
        args.clear()
        return held[0]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def mlp() -> nn.Module:
    """Two layers over (4, 16)."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def repeated(call: Callable[[], object], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            call()

    return run


def kernel_call() -> Callable[[], object]:
    """One kernel on two inputs and one output that is allocated for it, as a program calls it."""
    compiled = bridge.compile(lambda a, b: a * b + a)
    a, b = torch.randn(8), torch.randn(8)
    with torch.no_grad():
        compiled(a, b)
    (graph,) = bridge.inspect(compiled).graphs
    scope = graph.run.__globals__
    (name,) = [name for name in scope if name.startswith("k0")]
    kernel, empty, dtype = scope[name], scope["empty"], torch.float32

    def call() -> torch.Tensor:
        out = empty((8,), (1,), dtype)
        kernel(a, b, out)
        return out

    torch.testing.assert_close(call(), a * b + a)
    return call


def training_step(model: Callable[..., torch.Tensor], parameters: Sequence[nn.Parameter]) -> Callable[[], object]:
    """Forward and backward, gradients set anew; the loss's own gradient is given, so nothing runs outside the model."""
    x, gradient = torch.randn(4, 16), torch.ones(4, 4)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        model(x).backward(gradient)

    return step


def measured() -> list[Record]:
    """The readings, in seconds a call."""
    steps: dict[str, Callable[[], object]] = {}
    models = {"eager": mlp(), "nothing": mlp(), "bridge": mlp(), "inductor": mlp()}
    compiled: dict[str, Any] = {
        "eager": models["eager"],
        "nothing": torch.compile(
            models["nothing"], backend=aot_autograd(fw_compiler=nothing_compiled, bw_compiler=nothing_compiled)
        ),
        "bridge": bridge.compile(models["bridge"]),
        "inductor": torch.compile(models["inductor"]),
    }
    for name, model in compiled.items():
        steps[name] = repeated(training_step(model, list(models[name].parameters())), CALLS)
    records: list[Record] = []
    call = kernel_call()
    with Progress() as progress:
        task = progress.add_task("time a step of each", total=ROUNDS)
        times = interleaved(steps, ROUNDS, lambda: progress.advance(task))
        for _ in range(ROUNDS):
            start = perf_counter()
            repeated(call, CALLS)()
            times.setdefault("kernel", ())
            times["kernel"] += ((perf_counter() - start) / CALLS,)
    for name, readings in times.items():
        if name == "kernel":
            records.append(Measure("kernel call on 3 tensors", readings, "s", "bridge", "8 elements"))
        else:
            records.append(Measure("step", tuple(t / CALLS for t in readings), "s", name, "mlp"))
    return records


def main() -> None:
    about = {"command": "python -m experiments.host_overhead.run", **machine()}
    write(RESULTS / "host_overhead.jsonl", measured(), about)


if __name__ == "__main__":
    main()
