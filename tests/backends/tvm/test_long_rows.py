"""Rows that no block holds in its registers: a part of them is held, and each walk over the rest goes the other way."""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch
from torch.nn import functional as F

import bridge
from bridge.backends.tvm.nvidia import compiled_for_gpu, source_of
from tests.backends.tvm.emulated import H200, emulated


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [1 << 16, 49_993, 70_004, 300_000])
def test_softmax_and_its_gradient(length: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, length, dtype=dtype)
    weight = torch.randn(2, length, dtype=dtype)
    with emulated():
        compiled, results = bridge.compile(lambda x: F.softmax(x, -1), options={"cache": False}), []
        for function, given in ((compiled, x), (torch.nn.Softmax(-1), x), (torch.nn.Softmax(-1), x.double())):
            leaf = given.clone().requires_grad_()
            result = function(leaf)
            results.append((result, *torch.autograd.grad(result, leaf, weight.to(given.dtype))))
    for mine, eager, exact in zip(*results, strict=True):
        error, own = ((t.double() - exact).abs().max() for t in (mine, eager))
        assert error <= max(2 * own, 1e-6 * exact.abs().max() if dtype == torch.float32 else 0)


def kernel_of(length: int) -> object:
    with emulated() as programs:
        bridge.compile(lambda x: F.softmax(x, -1), options={"cache": False})(torch.randn(1, length))
    (kernel,) = programs[0].values()
    return kernel


@pytest.mark.parametrize(("length", "reads"), [(1 << 14, 1), (1 << 16, 1 + 3), (36 << 12, 3)])
def test_how_often_a_row_is_read(length: int, reads: int) -> None:
    """All of it once; a part once and the rest in each of three walks; all in each."""
    text = kernel_of(length).script()  # type: ignore[attr-defined]
    assert text.count("= f0[") == reads


@pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="no NVRTC")
def test_walks_are_not_unrolled_into_registers_that_there_are_not() -> None:
    target = __import__("tvm").target.Target(H200)
    (part,) = compiled_for_gpu({"kernel": kernel_of(1 << 16)}, target).imports
    loops = re.findall(r"(#pragma unroll ?1?)\n *for \(int (rolled|i)\d+ =", source_of(part.inspect_source("cuda")))
    assert loops.count(("#pragma unroll 1", "rolled")) == 3
    assert ("#pragma unroll", "rolled") not in loops
