"""Time several things against one another on a machine that does not hold still, and say which machine it is."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import torch

import bridge

WARM_UP = 2


def interleaved(
    calls: Mapping[str, Callable[[], object]], rounds: int, each_round: Callable[[], object] = lambda: None
) -> dict[str, tuple[float, ...]]:
    """Seconds of each call, `rounds` times, after two rounds that are not counted.

    The calls take turns within a round, and each round begins with another one, so that all meet the same machine.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds + WARM_UP):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = perf_counter()
            calls[name]()
            times[name].append(perf_counter() - start)
        each_round()
    return {name: tuple(readings[WARM_UP:]) for name, readings in times.items()}


def machine() -> dict[str, str]:
    """Where the numbers come from."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        processor = models[0].partition(":")[2].strip() if models else processor
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{processor}, {len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} threads",
        "versions": f"bridge {bridge.__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }
