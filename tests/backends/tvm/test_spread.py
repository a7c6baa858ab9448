"""A batch's mean and variance in one walk over images that lie by channels, and what lies between kernels on a GPU."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from tests.backends.tvm.emulated import emulated

LAST = torch.channels_last


@pytest.mark.parametrize(
    ("mean", "first"), [(0.0, None), (1e3, None), (0.0, 1e3), (-50.0, 0.0)], ids=["centred", "far", "outlier", "other"]
)
def test_mean_and_variance(mean: float, first: float | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 16, 32, 32) + mean
    if first is not None:
        x[0, :, 0, 0] = first
    x = x.to(memory_format=LAST)
    own, mine, exact = nn.BatchNorm2d(16), nn.BatchNorm2d(16), nn.BatchNorm2d(16).double()
    with emulated():
        compiled = bridge.compile(mine, options={"cache": False})
        found = compiled(x)
    mine_all, own_all, exact_all = (
        (result, *net.buffers()) for result, net in ((found, mine), (own(x), own), (exact(x.double()), exact))
    )
    for one, its, right in zip(mine_all, own_all, exact_all, strict=True):
        error, limit = ((t.double() - right).abs().max().item() for t in (one, its))
        assert error <= max(4 * limit, 2e-6 * right.abs().max().item())
    graph = bridge.inspect(compiled).graphs[0]
    kernels = [line for line in graph.source.splitlines() if re.match(r"\s+k\d+_", line)]
    assert len(kernels) <= 4, "the parts of both sums, the sums, the images, and how many batches there were"
    assert sum("_parts" in line for line in kernels) == 2


def test_a_mean_of_other_terms_is_left_as_it_is() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x - y.mean((0, 2, 3), keepdim=True)).square().sum((0, 2, 3))

    x, y = (torch.randn(16, 16, 32, 32).to(memory_format=LAST) for _ in range(2))
    with emulated():
        found = bridge.compile(function, options={"cache": False})(x, y + 3)
    torch.testing.assert_close(found, function(x, y + 3), rtol=1e-4, atol=1e-2)


def test_what_lies_between_kernels_lies_as_what_it_is_made_of() -> None:
    """It takes no more memory than its values have digits, either."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        total = (F.gelu(x) + y + z).float()
        return [(total * (total.sum(dims) / (n + 1)).reshape(shape)).bfloat16() for n, (dims, shape) in enumerate(WAYS)]

    images = [torch.randn(16, 16, 32, 32).bfloat16().to(memory_format=LAST) for _ in range(3)]
    with emulated():
        compiled = bridge.compile(function, options={"cache": False})
        found = compiled(*images)
    for mine, right in zip(found, function(*images), strict=True):
        torch.testing.assert_close(mine, right, rtol=3e-2, atol=0.5)
    source = bridge.inspect(compiled).graphs[0].source
    whole = [line for line in source.splitlines() if "empty((16, 16, 32, 32)" in line]
    assert len(whole) > len(WAYS), "what all the results are made of is kept"
    assert all("torch_bfloat16" in line for line in whole)
    kept = [line for line in whole if line.split(" = ")[0].strip() not in source.splitlines()[-1]]
    assert all("(16384, 1, 512, 16)" in line for line in kept)


WAYS = (((0, 2, 3), (1, 16, 1, 1)), ((1, 2, 3), (16, 1, 1, 1)), ((0, 1, 2), (1, 1, 1, 32)))
