"""Time each Triton kernel at real sizes beside ATen, and compare what they give: `python -m experiments.gpu.kernels`.

Writes a JSON line for each case and prints it short. What a kernel reaches is told as a rate, beside the rates of a
copy and of a matrix product on the same machine. A case that fails is a line that says so.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import randint, randn
from torch._ops import OpOverload

from bridge.backends.triton.table import CONFIG, table

aten = torch.ops.aten
MANY = 2**26
"""Elements of what is bound by memory: far more than the cache holds."""


@dataclass(frozen=True)
class Case:
    """A call by its ATen arguments. bytes, flops: what it has to move or calculate at least."""

    name: str
    op: OpOverload
    make: Callable[[], tuple[Any, ...]]
    bytes: float = 0
    flops: float = 0


def bits16(*shape: int) -> torch.Tensor:
    return randn(shape, dtype=torch.bfloat16)


def cases() -> Iterator[Case]:
    rows, width, words = 8192, 768, 50257
    yield Case("cumsum of rows", aten.cumsum.default, lambda: (randn(2**16, 1024), 1), bytes=8 * MANY)
    yield Case("cumsum of columns", aten.cumsum.default, lambda: (randn(1024, 2**16), 0), bytes=8 * MANY)
    yield Case("cumsum of one line", aten.cumsum.default, lambda: (randn(MANY), 0), bytes=8 * MANY)
    yield Case("cumprod of rows, bf16", aten.cumprod.default, lambda: (bits16(2**16, 1024), 1), bytes=4 * MANY)
    yield Case("logcumsumexp of rows", aten.logcumsumexp.default, lambda: (randn(2**14, 1024), 1), bytes=2 * MANY)
    yield Case("cummax of rows", aten.cummax.default, lambda: (randn(2**14, 1024), 1), bytes=4 * MANY)
    yield Case("sort of rows of 1024", aten.sort.stable, lambda: (randn(rows, 1024), True, 1, False))
    yield Case("sort of rows of 128, bf16", aten.sort.stable, lambda: (bits16(rows, 128), True, 1, True))
    yield Case("2 of 64 by a router", aten.topk.default, lambda: (randn(2**15, 64), 2))
    yield Case("50 of a vocabulary", aten.topk.default, lambda: (randn(64, words), 50))
    yield Case("8 of rows of 1024", aten.topk.default, lambda: (randn(rows, 1024), 8))
    tokens = (randn(rows, width), randint(0, words, (rows,)), words, -1, False)
    moved = 4 * width * (words + rows)
    yield Case("embedding backward", aten.embedding_dense_backward.default, lambda: tokens, bytes=moved)
    narrow = (tokens[0].bfloat16(), *tokens[1:])
    yield Case("embedding backward, bf16", aten.embedding_dense_backward.default, lambda: narrow, bytes=moved / 2)
    few = (randn(2**16, width), randint(0, 1024, (2**16,)), 1024, -1, False)
    yield Case(
        "embedding backward, few words", aten.embedding_dense_backward.default, lambda: few, bytes=4 * 2**16 * width
    )
    edges = (torch.zeros(2**17, 64), 0, randint(0, 2**17, (2**20, 1)).expand(-1, 64), randn(2**20, 64))
    yield Case("scatter_add of edges", aten.scatter_add.default, lambda: edges, bytes=4 * MANY)
    yield Case(
        "index_add of edges", aten.index_add.default, lambda: (edges[0], 0, edges[2][:, 0], edges[3]), bytes=4 * MANY
    )
    put = (edges[0], [edges[2][:, 0].contiguous()], edges[3], True)
    yield Case("index_put with sums", aten.index_put.default, lambda: put, bytes=4 * MANY)
    one = (randn(2**16, 1024), 1, randint(0, 1024, (2**16, 1)), 1.0)
    yield Case("scatter of one a row", aten.scatter.value, lambda: one, bytes=8 * MANY)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("out/kernels.jsonl"))
    options.add_argument("--only", default="", help="a pattern that names of cases have to match")
    chosen = options.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    torch.set_default_device("cuda")
    with chosen.out.open("w", encoding="utf-8") as file:
        for line in (ceilings(), *measured(chosen.only)):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(" ".join(f"{name}={value}" for name, value in line.items()), flush=True)


def measured(pattern: str) -> Iterator[dict[str, Any]]:
    for case in cases():
        if re.search(pattern, case.name):
            torch.manual_seed(0)
            try:
                yield {"case": case.name, "op": str(case.op), **compared(case)}
            except Exception as error:  # the next case is another kernel
                yield {"case": case.name, "op": str(case.op), "failed": f"{type(error).__name__}: {error}"[:400]}
            torch.cuda.empty_cache()


def ceilings() -> dict[str, Any]:
    """The rates of a copy, counting what is read and written, and of a matrix product."""
    x, a = randn(2**29), bits16(8192, 8192)
    copying, product = milliseconds(lambda: x.clone()), milliseconds(lambda: a @ a)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy GB/s": round(8 * x.numel() / copying / 1e6),
        "product TFLOP/s": round(2 * 8192**3 / product / 1e9),
    }


def milliseconds(call: Callable[[], Any]) -> float:
    """The median time on the device."""
    found: Any = triton.testing.do_bench(call, warmup=10, rep=40, return_mode="median")
    return float(found)


def compared(case: Case) -> dict[str, Any]:
    """The quickest configuration and ATen; the largest error of any configuration, beside the largest number."""
    row, arguments = table()[case.op], case.make()
    given = dict(zip((argument.name for argument in case.op._schema.arguments), arguments))
    defaults = {a.name: a.default_value for a in case.op._schema.arguments if a.has_default_value()}
    named = {"x" if name == "self" else name: {**defaults, **given}[name] for name in row.parameters}
    expected, times, error = case.op(**given), {}, 0.0
    for place, config in enumerate(row.configs):

        def call(told: Any = {CONFIG: config} if config else {}) -> Any:
            return row.fn(**named, **told)

        try:
            error = max(error, distance(call(), expected))
            times[place] = milliseconds(call)
        except triton.runtime.errors.OutOfResources:
            continue
    best = min(times, key=times.__getitem__)
    ours, theirs = times[best], milliseconds(lambda: case.op(**given))
    rates = {"GB/s": round(case.bytes / ours / 1e6)} if case.bytes else {}
    rates |= {"TFLOP/s": round(case.flops / ours / 1e9)} if case.flops else {}
    return {
        "triton ms": round(ours, 4), "aten ms": round(theirs, 4), "ratio": round(ours / theirs, 3), **rates,
        "error": error, "config": dict(row.configs[best]), "all ms": [round(time, 4) for time in times.values()],
    }  # fmt: skip


def distance(found: Any, expected: Any) -> float:
    """The norm of the difference of the first result, over the norm of what is expected."""
    if isinstance(expected, tuple | list):
        return max(distance(a, b) for a, b in zip(found, expected) if b is not None and b.is_floating_point())
    difference = torch.linalg.vector_norm((found.double() - expected.double()).nan_to_num())
    return float(difference / torch.linalg.vector_norm(expected.double().nan_to_num()).clamp_min(1e-30))


if __name__ == "__main__":
    main()
