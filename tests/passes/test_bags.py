"""Bags of embeddings are generated, and are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import bridge


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sum"},
        {"mode": "mean"},
        {"mode": "sum", "weighted": True},
        {"mode": "sum", "padding_idx": 3, "weighted": True},
        {"mode": "mean", "padding_idx": 3},
        {"mode": "mean", "include_last_offset": True},
        {"mode": "max"},
        {"mode": "sum", "scale_grad_by_freq": True},
    ],
    ids=str,
)
def test_bags(options: dict[str, Any]) -> None:
    options = dict(options)
    weighted = options.pop("weighted", False)
    indices = torch.tensor([1, 3, 3, 0, 6, 2, 3])
    offsets = torch.tensor([0, 2, 2, 5, 7] if "include_last_offset" in options else [0, 2, 2, 5])

    def bags(table: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        given = {"per_sample_weights": weights} if weighted else {}
        return F.embedding_bag(indices, table, offsets, **given, **options).tanh()

    compiled, results = bridge.compile(bags), []
    for function in (bags, compiled):
        torch.manual_seed(0)
        table, weights = torch.randn(7, 5, requires_grad=True), torch.randn(7, requires_grad=True)
        made = function(table, weights)
        made.backward(torch.linspace(-1, 1, made.numel()).view_as(made))
        results.append((made, table.grad, weights.grad))
    torch.testing.assert_close(results[1], results[0])
    fallback = sum(ways["fallback"] for ways in compiled.placement.values())
    assert (fallback == 0) == (options["mode"] != "max" and "scale_grad_by_freq" not in options)
