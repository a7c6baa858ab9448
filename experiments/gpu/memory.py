"""What of a copy's bandwidth TVM's kernels reach at 64 M elements: `python -m experiments.gpu.memory [--cases NAME…]`.

Each case is a function compiled by the bridge, or its backward. The time is that of the GPU, which has other work until
all calls are made, so that the host does not count; the bytes are those of what has to be read and written, each once,
though what two walks need may be read twice. Eager's kernels are beside it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain as chained
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, randn
from torch.nn import functional as F

import bridge

MANY = 2**26
ROUNDS, CALLS, BEFORE = 4, 5, 4
"""How often a few calls are timed, and products of matrices of a millisecond and more that keep the GPU busy before."""


Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """moves: how many tensors of the size of the first argument the forward, and the backward, has to read or write."""

    name: str
    function: Function
    shape: tuple[int, ...]
    moves: tuple[float, float]
    operands: int = 1
    channels_last: bool = False


def chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.tanh(x.sigmoid() * y - x.exp().clamp(max=3)) * 0.5


def layer_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, w)


def batch_norm(x: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, training=True))


ROWS, IMAGES = (2**16, 1024), (64, 256, 64, 64)
CASES = (
    Case("sum of two", lambda x, y: x + y, ROWS, (3, 0), operands=2),
    Case("chain of 7", chain, ROWS, (3, 5), operands=2),
    Case("GELU", lambda x: F.gelu(x), ROWS, (2, 3)),
    Case("softmax of rows", lambda x: F.softmax(x, -1), ROWS, (2, 3)),
    Case("softmax of long rows", lambda x: F.softmax(x, -1), (2**10, 2**16), (2, 3)),
    Case("layer norm", lambda x: F.layer_norm(x, (x.shape[-1],)), ROWS, (2, 3)),
    Case("RMS norm", lambda x: F.rms_norm(x, (x.shape[-1],)), ROWS, (2, 3)),
    Case("sum of rows", lambda x: x.sum(-1), ROWS, (1, 0)),
    Case("sum of columns", lambda x: x.sum(0), ROWS, (1, 0)),
    Case("sum of all", lambda x: x.sum(), ROWS, (1, 0)),
    Case("batch norm and ReLU", batch_norm, IMAGES, (3, 5)),
    Case("batch norm and ReLU, by channels", batch_norm, IMAGES, (3, 5), channels_last=True),
    Case("transposed", lambda x: x.t().contiguous(), (2**13, 2**13), (2, 0)),
)
"""A batch norm has to be read for its statistics before it is normalised; its backward reads
all twice, and makes what the ReLU hides again."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("out/memory.jsonl"))
    options.add_argument("--cases", nargs="*", default=[case.name for case in CASES], help="all, unless some are named")
    given = options.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    torch.set_default_device("cuda")
    ceiling = 8 * 2**29 / kernel_ms(randn(2**29).clone) / 1e6
    with given.out.open("w", encoding="utf-8") as file:
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "copy GB/s": round(ceiling)}
        for line in chained([about], measured(ceiling, given.cases)):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(" ".join(f"{name}={value}" for name, value in line.items()), flush=True)


def measured(ceiling: float, names: Collection[str]) -> Iterator[dict[str, Any]]:
    for case in (case for case in CASES if case.name in names):
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            form = torch.channels_last if case.channels_last else torch.contiguous_format
            tensors = [randn(case.shape, dtype=dtype).to(memory_format=form) for _ in range(case.operands)]
            compiled = bridge.compile(case.function)
            for way, moves in zip(("forward", "backward"), case.moves):
                if moves:
                    ours, eager = (kernel_ms(_call(f, tensors, way)) for f in (compiled, case.function))
                    rate = moves * tensors[0].nbytes / ours / 1e6
                    yield {
                        "case": case.name, "dtype": str(dtype).removeprefix("torch."), "way": way,
                        "ms": round(ours, 4), "eager ms": round(eager, 4), "GB/s": round(rate),
                        "of copy": round(rate / ceiling, 3),
                    }  # fmt: skip


def _call(function: Function, tensors: list[Tensor], way: str) -> Callable[[], object]:
    if way == "forward":
        return partial(function, *tensors)
    wanted = [tensor.detach().requires_grad_() for tensor in tensors]
    result = function(*wanted)
    gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, wanted, gradient, retain_graph=True)


def kernel_ms(call: Callable[[], object]) -> float:
    """Milliseconds of the GPU for one call: the median of a few, called while the GPU still has other work to do."""
    side = torch.ones(8192, 8192, dtype=torch.bfloat16)
    for _ in range(3):
        call()
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        for _ in range(BEFORE):
            torch.mm(side, side)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(CALLS + 1)]
        for event in events[:-1]:
            event.record()
            call()
        events[-1].record()
        torch.cuda.synchronize()
        times += [first.elapsed_time(second) for first, second in pairwise(events)]
    return median(times)


if __name__ == "__main__":
    main()
