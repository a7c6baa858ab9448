"""Sums of many terms are as exact as torch's."""

from __future__ import annotations

import pytest
import torch

import bridge


@pytest.mark.parametrize("dim", [0, 1])
def test_running_sums_are_as_exact_as_in_eager(dim: int) -> None:
    x = torch.rand(2, 300_001) * 1e-3 + 1
    x = x if dim else x.t().contiguous()
    compiled = bridge.compile(lambda x: x.cumsum(dim))
    exact = x.double().cumsum(dim)
    assert ((compiled(x) - exact).abs() / exact).max() < 1e-7
    assert compiled.placement["inference"]["generated"] == 1


@pytest.mark.parametrize("shape", [(3_000_000,), (3, 700_001), (700_001, 3)])
def test_sums_are_within_a_few_units(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape) * 1e-3 + 1
    compiled = bridge.compile(lambda x: (x.sum(), x.sum(0), x.sum(-1), (x * 2).mean()))
    for mine, exact in zip(
        compiled(x), (x.double().sum(), x.double().sum(0), x.double().sum(-1), x.double().mean() * 2), strict=True
    ):
        assert ((mine - exact).abs() / exact).max() < 3e-6
