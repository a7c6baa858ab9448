"""What a NaN does to a distance depends on the op and on the norm's order; ours does what eager's does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import bridge

Distance = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]

DISTANCES: dict[str, Distance] = {
    "cdist": lambda x, y, p: torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist"),
    "pdist": lambda x, y, p: torch.pdist(x, p),
    "dist": lambda x, y, p: torch.dist(x[0], y[0], p),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_of_what_holds_nan(name: str) -> None:
    x, y = torch.randn(3, 5), torch.randn(2, 5)
    x[0, 0], x[1, -1] = math.nan, math.nan
    orders = (0.0, 1.0, 2.0, math.inf)
    compiled = bridge.compile(lambda x, y: [DISTANCES[name](x, y, p) for p in orders])
    for found, p in zip(compiled(x, y), orders, strict=True):
        torch.testing.assert_close(found, DISTANCES[name](x, y, p), equal_nan=True)
    assert not list(bridge.inspect(compiled).ledger)
