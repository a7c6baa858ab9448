"""All that is measured of one model with symbolic sizes, as the records of a ledger file.

python -m experiments.dynamic_shape.step gpt2 out.jsonl [--rounds 20]
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import bridge
from bridge.demo.timing import interleaved
from bridge.ledger import DeadEnd, Event, Measure, Record
from bridge.ledger.jsonl import write
from experiments.corpus import Made
from experiments.coverage.dynamic import PROGRAMS, judged, reset
from experiments.coverage.step import WRONG, WRONG_RESULTS, taken
from experiments.dynamic_shape.models import MODELS, Inputs, made

SYMBOLIC, STATIC, EAGER, INDUCTOR = "bridge", "bridge, static", "eager", "inductor, dynamic"
SHORTEST = 0.02
"""Seconds that one reading takes at least."""


def label(name: str, size: tuple[int, int]) -> str:
    """A model at a size, as the records name it: "gpt2 4x32"."""
    return f"{name} {size[0]}" + (f"x{size[1]}" if size[1] else "")


def swept(name: str, compiled: Any, module: Any, loss: Any) -> list[Record]:
    """A step at each size: whether it is right, how many programs it made, and how long it took."""
    pristine = copy.deepcopy(module)
    state = bridge.inspect(compiled)
    records: list[Record] = []
    for size in MODELS[name].sizes:
        torch.manual_seed(1)
        args, kwargs = MODELS[name].inputs(*size)
        given: Made = (copy.deepcopy(pristine), args, kwargs, loss)
        reset(module, pristine)
        before = len(state.graphs)
        found = taken(compiled, args, kwargs, loss)
        wrong, _ = judged(found, given)
        at = label(name, size)
        records += [
            *(Event(DeadEnd.MAINTENANCE, what, how, WRONG, model=at) for what, how in wrong),
            Measure(PROGRAMS, (float(len(state.graphs) - before),), "", SYMBOLIC, at),
            Measure("first step", (found.seconds,), "s", SYMBOLIC, at),
            Measure(WRONG_RESULTS, (float(len(wrong)),), "", SYMBOLIC, at),
        ]
    return records


def timed(name: str, size: tuple[int, int], steps: dict[str, Any], rounds: int) -> list[Record]:
    """Steps of the ways in turns. What a way needed for its first step at this size comes with it."""
    inputs = MODELS[name].inputs(*size)
    calls = {way: step_of(module, loss, inputs) for way, (module, loss) in steps.items()}
    at, records, times = label(name, size), [], 1
    for way, call in calls.items():
        start = perf_counter()
        call()
        records.append(Measure("first step at a size", (perf_counter() - start,), "s", way, at))
        call()
        start = perf_counter()
        call()
        times = max(times, round(SHORTEST / (perf_counter() - start)))
    readings = interleaved({way: repeated(call, times) for way, call in calls.items()}, rounds)
    return [*records, *(Measure("step", tuple(r / times for r in rs), "s", way, at) for way, rs in readings.items())]


def step_of(module: Any, loss: Any, inputs: Inputs) -> Callable[[], None]:
    args, kwargs = inputs

    def step() -> None:
        module.zero_grad()
        loss(module(*args, **kwargs)).backward()

    return step


def repeated(call: Callable[[], None], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            call()

    return run


def measured(name: str, rounds: int) -> list[Record]:
    module, loss = made(name)
    compiled = bridge.compile(module, dynamic=True)
    records = swept(name, compiled, module, loss)
    state = bridge.inspect(compiled)
    plain, loss_of_plain = made(name)
    inductor, loss_of_inductor = made(name)
    steps: dict[str, Any] = {
        SYMBOLIC: (compiled, loss),
        EAGER: (plain, loss_of_plain),
        INDUCTOR: (torch.compile(inductor, dynamic=True), loss_of_inductor),
    }
    for size in MODELS[name].steady:
        static, loss_of_static = made(name)
        steps[STATIC] = (bridge.compile(static, dynamic=False), loss_of_static)
        records += timed(name, size, steps, rounds)
    return [*state.records(name), *records]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS, metavar="NAME")
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    write(given.file, measured(given.name, given.rounds))


if __name__ == "__main__":
    main()
