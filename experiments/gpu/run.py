"""Time a training step on a GPU: eager, Inductor and the bridge, each also with its CUDA graphs, in bf16 autocast.

    python -m experiments.gpu.run --out RESULTS.jsonl [--models gpt2 mlp] [--ways eager bridge] [--minutes 9] [--jobs 3]

Each model is timed in a process of its own, and gets one line a way: the median of rounds in which the ways take turns,
host time, the first step with its compilation, and memory. Models are compiled side by side, and timed one after the
other while none is compiled. What is in the file already is not done again.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROUNDS, WARM, STREAM = 16, 5, 20
MODELS = ("mlp", "dlrm", "resnet50", "vit", "gpt2", "llama", "bert")


def main() -> None:
    from experiments.gpu.ways import WAYS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--one", help="time this model in this process")
    given = parser.parse_args()
    if given.one:
        measured(given.one, given.ways, given.out)
        return
    end = time.monotonic() + 60 * given.minutes

    def timed(name: str) -> None:
        missing = [way for way in given.ways if (name, way) not in _done(given.out)]
        missing = [way for way in missing if way != "nothing" or name == "mlp"]
        left = end - time.monotonic()
        if missing and left > 0:
            command = [sys.executable, "-m", "experiments.gpu.run", "--out", str(given.out), "--one", name]
            try:
                subprocess.run([*command, "--ways", *missing], timeout=left, check=False)
            except subprocess.TimeoutExpired:
                print(f"{name}: out of time", flush=True)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(timed, given.models))


def _done(path: Path) -> set[tuple[str, str]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(line["model"], line["way"]) for line in map(json.loads, lines)}


def measured(name: str, ways: list[str], out: Path) -> None:
    """Time one model every way, and add the lines to the file."""
    import torch

    from experiments.gpu.models import MODELS
    from experiments.gpu.ways import WAYS

    lines: dict[str, dict[str, Any]] = {}
    steps: dict[str, Callable[[], Any]] = {}
    turns = out.with_suffix(".lock").open("w")
    fcntl.flock(turns, fcntl.LOCK_SH)
    for way in ways:
        lines[way] = {"model": name, "way": way, "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
        torch.cuda.empty_cache()
        others = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        try:
            torch.manual_seed(0)
            with torch.device("cuda"):
                model, inputs = MODELS[name]()
            steps[way], found = _first(partial(WAYS[way], model, inputs), model, others)
            lines[way] |= found
        except Exception as error:  # a way that fails costs its own line
            lines[way]["failed"] = f"{type(error).__name__}: {str(error)[-600:]}"
        print(json.dumps(lines[way]), flush=True)
    with turns:
        fcntl.flock(turns, fcntl.LOCK_UN)
        fcntl.flock(turns, fcntl.LOCK_EX)
        times, hosts = _rounds(steps)
        for way in steps:
            lines[way] |= {"ms": statistics.median(times[way]), "host_ms": statistics.median(hosts[way])}
            lines[way] |= {"ms_low": min(times[way]), "ms_high": max(times[way]), "stream_ms": _in_a_stream(steps[way])}
        with out.open("a") as file:
            for line in lines.values():
                print(json.dumps(line), flush=True)
                file.write(json.dumps(line) + "\n")
    os._exit(0)  # captured graphs need not be taken down one by one


def _first(
    make: Callable[[], Callable[[], Any]], model: Any, others: tuple[int, int]
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The step, and of it: the first one, and the memory that is taken after a few, without what others hold."""
    import torch

    start = time.perf_counter()
    step = make()
    loss = step().item()
    first = time.perf_counter() - start
    made = [p.grad.float().norm() for p in model.parameters() if p.grad is not None]
    found = {"first_s": first, "loss": loss, "gradient_norm": torch.stack(made).norm().item() if made else None}
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    found["peak_mb"] = (torch.cuda.max_memory_allocated() - others[0]) / 2**20
    found["reserved_mb"] = (torch.cuda.max_memory_reserved() - others[1]) / 2**20
    return step, found


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


def _in_a_stream(step: Callable[[], Any]) -> float:
    """Milliseconds of a step among others that nobody waits for, as in training."""
    import torch

    step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STREAM):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / STREAM


if __name__ == "__main__":
    main()
