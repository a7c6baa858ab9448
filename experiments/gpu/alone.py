"""One model, one way, in a process of its own: its step, the kernels of it, and the memory that is reserved.

    python -m experiments.gpu.alone resnet50 "bridge graphs" [--out FILE] [--kernels 40]

What `run.py` tells of memory is told beside other ways, whose holes an allocator fills; here there are none.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from experiments.gpu.models import MODELS
from experiments.gpu.ways import WAYS

WARM, STEPS, PROFILED = 13, 30, 2
GENERATED = re.compile(r"k\d+_\w*_kernel$|triton_")
"""Names of kernels that the bridge or Inductor has generated."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", choices=MODELS)
    options.add_argument("way", choices=WAYS)
    options.add_argument("--out", type=Path, default=Path("out/alone.jsonl"))
    options.add_argument("--kernels", type=int, default=40, help="how many of the longest are printed")
    given = options.parse_args()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, inputs = MODELS[given.model]()
    step = WAYS[given.way](model, inputs)
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    ms = 1e3 * (time.perf_counter() - start) / STEPS
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda event: -event.device_time_total)
    ours = [event for event in events if GENERATED.match(event.key)]
    line = {
        "model": given.model, "way": given.way, "ms": round(ms, 2),
        "kernel_ms": round(sum(event.device_time_total for event in events) / PROFILED / 1e3, 2),
        "generated_ms": round(sum(event.device_time_total for event in ours) / PROFILED / 1e3, 2),
        "generated_kernels": sum(event.count for event in ours) // PROFILED,
        "kernels": sum(event.count for event in events) // PROFILED,
        "reserved_mb": round(torch.cuda.memory_reserved() / 2**20),
    }  # fmt: skip
    for event in events[: given.kernels]:
        each, total = event.device_time_total / event.count, event.device_time_total / PROFILED / 1e3
        print(f"{total:7.3f} ms {event.count // PROFILED:5d} × {each:7.1f} µs {event.key}")
    print(json.dumps(line), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
