"""Times one model: a training step of eager, of Inductor and of the bridge, in one process and in turns.

python -m experiments.benchmark.step hf_gpt2 out.jsonl [--rounds 30]
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch._inductor.utils import fresh_cache

import bridge
from bridge.demo.timing import interleaved
from bridge.ledger import Measure, Record
from bridge.ledger.jsonl import write
from experiments.benchmark.memory import peak_bytes
from experiments.benchmark.models import MODELS
from experiments.corpus import Made

TARGETS: Mapping[str, Callable[[nn.Module], Any]] = {
    "eager": lambda module: module,
    "inductor": torch.compile,
    "bridge": bridge.compile,
}
SHORTEST = 5e-3
"""Seconds that one reading takes at least: small models are stepped several times for it."""

Step = Callable[[], None]


def training_step(model: Callable[..., Any], module: nn.Module, made: Made) -> Step:
    """Forward, loss and backward, the gradients made anew each time."""
    _, args, kwargs, loss = made
    parameters = list(module.parameters())

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss(model(*args, **kwargs)).backward()

    return step


def repeated(step: Step, times: int) -> Step:
    def steps() -> None:
        for _ in range(times):
            step()

    return steps


def measured(name: str, rounds: int) -> list[Record]:
    """The first step, steady steps and the peak of the memory of each target."""
    made = MODELS[name]()
    steps: dict[str, Step] = {}
    records: list[Record] = []
    for target, compile in TARGETS.items():
        module, args, kwargs, loss = copy.deepcopy(made[:3]) + made[3:]
        steps[target] = training_step(compile(module), module, (module, args, kwargs, loss))
        torch.manual_seed(0)
        start = perf_counter()
        steps[target]()
        records.append(Measure("first step", (perf_counter() - start,), "s", target, name))
    for step in steps.values():
        step()
    times = max(1, round(SHORTEST / _seconds(steps["eager"])))
    readings = interleaved({target: repeated(step, times) for target, step in steps.items()}, rounds)
    records += [Measure("step", tuple(r / times for r in rs), "s", target, name) for target, rs in readings.items()]
    records += [Measure("peak memory", (float(peak_bytes(s)),), "bytes", t, name) for t, s in steps.items()]
    return records


def _seconds(step: Step) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache, fresh_cache():
        os.environ["BRIDGE_CACHE_DIR"] = cache
        records = measured(given.name, given.rounds)
    write(given.file, records)


if __name__ == "__main__":
    main()
