"""Time a training step on a GPU: eager, Inductor and the bridge, each also with its CUDA graphs, in bf16 autocast.

    python -m experiments.gpu.run --out RESULTS.jsonl [--models gpt2 mlp] [--ways eager bridge] [--minutes 9]

Each model is timed in a process of its own, and gets one line a way: the median of rounds in which the ways take turns,
host time, the first step with its compilation, and the peak of memory. What is in the file already is not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROUNDS, WARM = 12, 4

COMPILERS: Mapping[str, Callable[[Any], Any]] = {
    "eager": lambda model: model,
    "inductor": lambda model: _inductor(model, None),
    "bridge": lambda model: _bridge(model, None),
    "inductor graphs": lambda model: _inductor(model, "reduce-overhead"),
    "bridge graphs": lambda model: _bridge(model, "reduce-overhead"),
}


def _inductor(model: Any, mode: str | None) -> Any:
    import torch

    return torch.compile(model, mode=mode)


def _bridge(model: Any, mode: str | None) -> Any:
    import bridge

    return bridge.compile(model, options={} if mode is None else {"mode": mode})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--ways", nargs="*", default=list(COMPILERS))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--one", help="time this model in this process")
    given = parser.parse_args()
    if given.one:
        measured(given.one, given.ways, given.out)
        return
    from experiments.gpu.models import MODELS

    end = time.monotonic() + 60 * given.minutes
    for name in given.models or MODELS:
        missing = [way for way in given.ways if (name, way) not in _done(given.out)]
        if missing and time.monotonic() < end:
            command = [sys.executable, "-m", "experiments.gpu.run", "--out", str(given.out), "--one", name]
            try:
                subprocess.run([*command, "--ways", *missing], timeout=max(1.0, end - time.monotonic()), check=False)
            except subprocess.TimeoutExpired:
                print(f"{name}: out of time", flush=True)


def _done(path: Path) -> set[tuple[str, str]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(line["model"], line["way"]) for line in map(json.loads, lines)}


def measured(name: str, ways: list[str], out: Path) -> None:
    """Time one model every way, and add the lines to the file."""
    import torch

    from experiments.gpu.models import MODELS

    torch.set_default_device("cuda")
    lines: dict[str, dict[str, Any]] = {}
    steps: dict[str, Callable[[], Any]] = {}
    for way in ways:
        lines[way] = {"model": name, "way": way, "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
        try:
            torch.manual_seed(0)
            model, inputs = MODELS[name]()
            step = _step(model, COMPILERS[way](model), inputs)
            lines[way] |= _first(step, model)
            steps[way] = step
        except Exception as error:  # a way that fails costs its own line
            lines[way]["failed"] = f"{type(error).__name__}: {str(error)[-600:]}"
        print(json.dumps(lines[way]), flush=True)
    times, hosts = _rounds(steps)
    for way in steps:
        lines[way] |= {"ms": statistics.median(times[way]), "host_ms": statistics.median(hosts[way])}
        lines[way] |= {"ms_low": min(times[way]), "ms_high": max(times[way])}
    with out.open("a") as file:
        for line in lines.values():
            print(json.dumps(line), flush=True)
            file.write(json.dumps(line) + "\n")
    os._exit(0)  # captured graphs need not be taken down one by one


def _step(model: Any, compiled: Any, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    import torch

    def step() -> Any:
        for parameter in model.parameters():
            parameter.grad = None
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(**inputs)
        loss.backward()
        return loss

    return step


def _first(step: Callable[[], Any], model: Any) -> dict[str, Any]:
    """The first step, then a few more, and what memory one takes at its peak."""
    import torch

    start = time.perf_counter()
    loss = step()
    norm = torch.stack([p.grad.float().norm() for p in model.parameters() if p.grad is not None]).norm()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    found = {"first_s": first, "loss": loss.item(), "gradient_norm": norm.item()}
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return {**found, "peak_mb": torch.cuda.max_memory_allocated() / 2**20, "held_mb": before / 2**20}


def _rounds(steps: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of each step until the GPU is done, and until the host is."""
    import torch

    times: dict[str, list[float]] = {way: [] for way in steps}
    hosts: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(ROUNDS):
        for way, step in steps.items():
            step()
            torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            hosts[way].append(1e3 * (time.perf_counter() - start))
            torch.cuda.synchronize()
            times[way].append(1e3 * (time.perf_counter() - start))
    return times, hosts


if __name__ == "__main__":
    main()
