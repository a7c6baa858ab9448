"""Time each Triton kernel at real sizes beside ATen, and compare what they give: `python -m experiments.gpu.kernels`.

Writes a JSON line for each case and prints it short. What a kernel reaches is told as a rate, beside the rates of a
copy and of a matrix product on the same machine. A case that fails is a line that says so.
"""

from __future__ import annotations

import argparse
import itertools
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

from bridge.backends.triton.kernels.optimizer import adamw, blocks
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


def products() -> Iterator[Case]:
    side = 4096
    a, b = bits16(side, side), bits16(side, side)
    yield Case("product of 4096, bf16", aten.mm.default, lambda: (a, b), flops=2 * side**3)
    yield Case("product with a transposed one, bf16", aten.mm.default, lambda: (a, b.t()), flops=2 * side**3)
    yield Case("product with bias, bf16", aten.addmm.default, lambda: (a[0], a, b), flops=2 * side**3)
    yield Case("product, bias, GELU", aten._addmm_activation.default, gelu_arguments(a, b), flops=2 * side**3)
    yield Case("product of 4096, TF32", aten.mm.default, lambda: (a.float(), b.float()), flops=2 * side**3)
    batches = (bits16(256, 512, 64), bits16(256, 64, 512))
    yield Case("products of batches, bf16", aten.bmm.default, lambda: batches, flops=2 * 256 * 512 * 512 * 64)


def gelu_arguments(a: torch.Tensor, b: torch.Tensor) -> Callable[[], tuple[Any, ...]]:
    return lambda: (a[0], a, b, 1, 1, True)


def attentions() -> Iterator[Case]:
    for name, batch, heads, length, width, causal in (
        ("causal 64", 8, 12, 1024, 64, True),
        ("long causal 128", 2, 16, 4096, 128, True),
        ("full 64", 32, 12, 512, 64, False),
    ):
        q, k, v = (bits16(batch, length, heads, width).transpose(1, 2) for _ in range(3))
        flops = 4 * batch * heads * length * length * width / (2 if causal else 1)
        forward = aten._scaled_dot_product_flash_attention.default
        yield Case(f"flash attention, {name}", forward, lambda q=q, k=k, v=v, c=causal: (q, k, v, 0.0, c), flops=flops)
        out, sums, n1, n2, longest, longest_k, seed, unused, _ = forward(q, k, v, 0.0, causal)
        given = (torch.randn_like(q), q, k, v, out, sums, n1, n2, longest, longest_k, 0.0, causal, seed, unused)
        backward = aten._scaled_dot_product_flash_attention_backward.default
        yield Case(f"flash attention backward, {name}", backward, lambda given=given: given, flops=2.5 * flops)
    bias = bits16(8, 1, 1024, 1024).expand(8, 12, 1024, 1024)
    q, k, v = (bits16(8, 1024, 12, 64).transpose(1, 2) for _ in range(3))
    efficient = aten._scaled_dot_product_efficient_attention.default
    flops = 4 * 8 * 12 * 1024 * 1024 * 64
    yield Case("attention with a bias", efficient, lambda: (q, k, v, bias, True), flops=flops)
    out, sums, seed, offset = efficient(q, k, v, bias, True)
    given = (torch.randn_like(q), q, k, v, bias, out, sums, seed, offset, 0.0, [True, True, True, False])
    backward = aten._scaled_dot_product_efficient_attention_backward.default
    yield Case("attention with a bias, backward", backward, lambda: given, flops=2.5 * flops)


def norms() -> Iterator[Case]:
    logits = bits16(8192, 50257)
    moved = 2 * logits.nbytes
    forward, backward = aten._log_softmax.default, aten._log_softmax_backward_data.default
    yield Case("log softmax of a vocabulary, bf16", forward, lambda: (logits, 1, False), bytes=moved)
    given = (logits, forward(logits, 1, False), 1, torch.bfloat16)
    yield Case("log softmax backward, bf16", backward, lambda: given, bytes=1.5 * moved)
    for rows, width in ((2**16, 1024), (8192, 768), (2**13, 8192)):
        for kind, x in (("", randn(rows, width)), (", bf16", bits16(rows, width))):
            moved, spread, w = 3 * x.nbytes, torch.rand(rows, 1) + 0.5, torch.ones(width, dtype=x.dtype)
            given = (x, x, [width], spread, spread, w, w, [True, True, True])
            name = f"layer norm backward {rows}×{width}{kind}"
            yield Case(name, aten.native_layer_norm_backward.default, lambda given=given: given, bytes=moved)
    given = (x, x, [width], spread, w, [True, True])
    yield Case("RMS norm backward", aten._fused_rms_norm_backward.default, lambda: given, bytes=moved)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("out/kernels.jsonl"))
    options.add_argument("--only", default="", help="a pattern that names of cases have to match")
    chosen = options.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    torch.set_default_device("cuda")
    with chosen.out.open("w", encoding="utf-8") as file:
        for line in itertools.chain((ceilings(),), measured(chosen.only), optimizers(chosen.only)):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(" ".join(f"{name}={value}" for name, value in line.items()), flush=True)


def measured(pattern: str) -> Iterator[dict[str, Any]]:
    torch.set_float32_matmul_precision("high")
    for case in itertools.chain(attentions(), products(), norms(), cases()):
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


def optimizers(pattern: str) -> Iterator[dict[str, Any]]:
    """AdamW over the parameters of a GPT-2, beside torch's fused one. It reads four numbers and writes three."""
    if not re.search(pattern, "AdamW"):
        return
    sizes = [50257 * 768, 1024 * 768, *[768 * 2304, 768 * 768, 768 * 3072, 768 * 3072, 2304, 768, 3072] * 12]
    params = [torch.nn.Parameter(randn(size)) for size in sizes]
    for param in params:
        param.grad = randn(param.shape)
    theirs = torch.optim.AdamW(params, lr=1e-3, fused=True)
    theirs.step()
    moments = [[theirs.state[p][name] for p in params] for name in ("exp_avg", "exp_avg_sq")]
    held = blocks([p.data for p in params], [p.grad for p in params if p.grad is not None], *moments)
    step, lr = torch.tensor(2.0), torch.tensor(1e-3)
    ours = milliseconds(lambda: adamw(held, step, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01))
    reference = milliseconds(theirs.step)
    rate = round(4 * 7 * sum(sizes) / ours / 1e6)
    yield {"case": "AdamW of a GPT-2", "triton ms": round(ours, 4), "aten ms": round(reference, 4),
           "ratio": round(ours / reference, 3), "GB/s": rate}  # fmt: skip


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
        pairs = [(a, b) for a, b in zip(found, expected) if isinstance(b, torch.Tensor) and b.is_floating_point()]
        return max(distance(a, b) for a, b in pairs)
    difference = torch.linalg.vector_norm((found.double() - expected.double()).nan_to_num())
    return float(difference / torch.linalg.vector_norm(expected.double().nan_to_num()).clamp_min(1e-30))


if __name__ == "__main__":
    main()
