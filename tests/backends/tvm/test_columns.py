"""The statistics of a large matrix's columns, on a CPU: one walk for both, over parts of its rows."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import bridge


@pytest.mark.parametrize(
    ("mean", "first"),
    [(0.0, None), (1e3, None), (0.0, 1e3), (0.0, float("inf")), (0.0, float("nan"))],
    ids=["centred", "far", "outlier", "infinite", "nan"],
)
def test_mean_and_variance_of_columns(mean: float, first: float | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(8192, 136) + mean
    if first is not None:
        x[0, ::2] = x[77, 1] = first
    own, mine, exact = nn.BatchNorm1d(136), nn.BatchNorm1d(136), nn.BatchNorm1d(136).double()
    compiled = bridge.compile(mine)
    found = compiled(x)
    results = [(found, *mine.buffers()), (own(x), *own.buffers()), (exact(x.double()), *exact.buffers())]
    for one, its, right in zip(*results, strict=True):
        torch.testing.assert_close(torch.isnan(one), torch.isnan(its))
        torch.testing.assert_close(torch.isinf(one), torch.isinf(its))
        one, its, right = (t[torch.isfinite(right)].double() for t in (one, its, right))
        if right.numel():
            error, limit = ((t - right).abs().max().item() for t in (one, its))
            assert error <= max(4 * limit, 2e-6 * right.abs().max().item())
    graph = bridge.inspect(compiled).graphs[0]
    kernels = [line for line in graph.source.splitlines() if re.match(r"\s+k\d+_", line)]
    assert sum(line.count("_parts") == 2 for line in kernels) == 2, "both sums, and what is made of them"


def test_the_order_of_summation_does_not_depend_on_threads() -> None:
    x = torch.randn(8192, 136)
    compiled, threads = bridge.compile(nn.BatchNorm1d(136)), torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(compiled(x))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results)
