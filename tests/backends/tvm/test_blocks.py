"""Kernels for a GPU compute what eager does, thread by thread, and are CUDA that compiles."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import bridge
from bridge.backends.tvm.nvidia import compiled_for_gpu, machine_code
from tests.backends.tvm.emulated import H200, Functions, emulated

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "chain": lambda x: torch.tanh(x.sigmoid() * x - x.exp().clamp(max=3)) * 0.5,
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of columns": lambda x: F.softmax(x, 0),
    "layer norm of gelu": lambda x: F.layer_norm(F.gelu(x), (x.shape[-1],)),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "column sum": lambda x: x.exp().sum(0),
    "transposed": lambda x: (x.t() * 2).contiguous(),
    "joined and padded": lambda x: F.pad(torch.cat([x, -x], 1), (1, 2)),
    "largest": lambda x: x.amax(-1) + x.detach().prod(0).sum(),
    "picked": lambda x: x.detach()[torch.arange(x.shape[0] - 1, -1, -1)] * x,
    "flags": lambda x: torch.where((x > 0).any(1, keepdim=True), x, -x),
}

SHAPES = [(3, 7), (33, 32), (5, 4100), (300, 40)]


def differs(function: Function, x: torch.Tensor, compiled: Function) -> str | None:
    """How a compiled function, or its gradient, is further from float64 than twice what eager is."""
    mine, theirs, exact = x.clone().requires_grad_(), x.clone().requires_grad_(), x.double().requires_grad_()
    results = [f(t) for f, t in ((compiled, mine), (function, theirs), (function, exact))]
    weight = torch.linspace(-1, 1, results[0].numel()).reshape(results[0].shape)
    gradients = [torch.autograd.grad(r, t, weight.to(r.dtype)) for r, t in zip(results, (mine, theirs, exact))]
    for one, eager, right in (results, [g[0] for g in gradients]):
        error, own = (torch.nan_to_num(t.double() - right).abs().max() for t in (one, eager))
        if error > max(2 * own, 2e-5 * right.abs().max() if x.dtype == torch.float32 else 0):
            return f"{error} off, where eager is {own} off"
    return None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_kind_of_kernel(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    with emulated():
        together = bridge.compile(lambda x: [function(x) for function in FUNCTIONS.values()], options={"cache": False})
        found = {
            name: differs(function, x, lambda t, number=number: together(t)[number])
            for number, (name, function) in enumerate(FUNCTIONS.items())
        }
    assert {name: how for name, how in found.items() if how} == {}
    assert [event.detail for event in together.ledger if event.kind != "copied back"] == []
    assert all(ways["fallback"] == 0 for ways in together.placement.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bit_floats(dtype: torch.dtype) -> None:
    x = torch.randn(24, 64, dtype=dtype)
    for name in ("chain", "softmax", "layer norm of gelu", "column sum", "transposed", "joined and padded"):
        with emulated():
            how = differs(FUNCTIONS[name], x, bridge.compile(FUNCTIONS[name], options={"cache": False}))
        assert how is None, f"{name}: {how}"


def test_symbolic_sizes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x * 2, -1) + x.sum(0)

    with emulated():
        compiled = bridge.compile(function, dynamic=True, options={"cache": False})
        for rows, columns in ((3, 7), (40, 300), (2, 5)):
            x = torch.randn(rows, columns)
            torch.testing.assert_close(compiled(x), function(x))
    assert len(bridge.inspect(compiled).graphs) == 1


def test_a_tensor_that_begins_anywhere() -> None:
    whole = torch.randn(64 * 33 + 1)
    x = whole[1:].view(33, 64)
    with emulated():
        compiled = bridge.compile(lambda x: F.softmax(x, -1) + x[:, 2:34].sum(1, keepdim=True))
        torch.testing.assert_close(compiled(x), F.softmax(x, -1) + x[:, 2:34].sum(1, keepdim=True))
    assert ".data_ptr() & 15" in bridge.inspect(compiled).graphs[0].source


def test_a_row_that_data_points_at_is_read_inside_of_its_tensor() -> None:
    table, place = torch.randn(6, 64), torch.tensor([0.0, 5, 6, 1e6, -1, -1e6])
    with emulated() as programs:  # which fails where anything else is read
        found = bridge.compile(lambda x, p: F.embedding(p.long(), x).exp(), options={"cache": False})(table, place)
    outside = torch.full((64,), torch.nan)
    expected = torch.stack([table[0], table[5], outside, outside, table[5], outside]).exp()
    torch.testing.assert_close(found, expected, equal_nan=True)
    (kernel,) = programs[0].values()
    assert "f1[T.Ramp(" in kernel.script(), "the row is read in patches"


def test_long_sums_are_split_and_what_they_sum_is_stored_on_the_way() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = F.gelu(x) * y
        return z, z.sum(0), y.sum(), y.view(8, 256, 160).sum((0, 2))

    x, y = torch.randn(2, 2048, 160).unbind()
    with emulated():
        compiled = bridge.compile(function, options={"cache": False})
        for one, other in zip(compiled(x, y), function(x.double(), y.double()), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)
    graph = bridge.inspect(compiled).graphs[0]
    assert "_parts" in graph.source
    assert graph.kernel_calls <= 6


def test_a_sum_over_images_by_channels_is_divided_along_several_axes() -> None:
    """What lies between has no layout of its own: where an image comes from memory decides."""
    x = torch.randn(16, 16, 32, 64).to(memory_format=torch.channels_last)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, (x.bfloat16() * 2).float(), y.expand(x.shape)).sum((0, 2, 3))

    y = torch.randn(16, 16, 1, 1)
    with emulated() as programs:
        found = bridge.compile(function, options={"cache": False})(x, y)
    torch.testing.assert_close(found, function(x, y), rtol=1e-4, atol=1e-2)
    threads = [[int(n) for n in re.findall(r'Idx.x", (\d+)\)', k.script())] for k in programs[0].values()]
    assert max(blocks * of_one for blocks, of_one in threads) >= 1 << 14


def test_results_are_the_same_at_each_run() -> None:
    x = torch.randn(77, 130)
    with emulated():
        compiled = bridge.compile(lambda x: (x.sum(0), x.sum(1), x.sum()))
        first, second = compiled(x), compiled(x)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def kernels_of(function: Callable[[torch.Tensor], object], x: torch.Tensor) -> Functions:
    with emulated() as programs:
        bridge.compile(function, options={"cache": False})(x)
    return programs[0]


def test_rows_are_read_once_and_in_patches() -> None:
    (kernel,) = kernels_of(lambda x: F.softmax(x, -1), torch.randn(64, 1024)).values()
    text = kernel.script()
    assert text.count("= f0[") == 1, "each element is read by one statement, whichever walks need it"
    assert "T.Ramp(" in text.split("= f0[")[1].split("\n")[0]
    assert "tvm_warp_shuffle_xor" in text
    assert "tvm_storage_sync" not in text


def test_columns_are_shared_by_way_of_memory() -> None:
    (kernel,) = kernels_of(lambda x: x.sum(0), torch.randn(512, 128)).values()
    assert "alloc_shared" in kernel.script()
    assert "tvm_storage_sync" in kernel.script()


def test_parameters_of_channels_do_not_turn_the_walk_over_an_image() -> None:
    norms = [torch.nn.BatchNorm2d(32) for _ in range(2)]
    *_, kernel = kernels_of(lambda x: F.relu(norms[0](x) + norms[1](-x)), torch.randn(2, 32, 8, 8)).values()
    assert kernel.script().count("T.Ramp(") >= 2, "an image is read and written in patches"


@pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="no NVRTC")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_are_cuda_that_compiles(dtype: torch.dtype) -> None:
    target = __import__("tvm").target.Target(H200)
    functions = kernels_of(lambda x: [f(x) for f in FUNCTIONS.values()], torch.randn(33, 64, dtype=dtype))
    for part in compiled_for_gpu(functions, target).imports:
        source = part.inspect_source("cuda")
        assert len(machine_code(source, "sm_90")) > 1000
        assert not any(f" {fast}(" in source for fast in ("__expf", "__logf", "__tanhf", "__powf"))
