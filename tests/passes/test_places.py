"""Masks as indices: what is done at their places is generated, and as eager does it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import bridge
from bridge.ledger import Way


def read_rows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask[:, 0]].sin()


def read_columns(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[:, mask[0]].sin()


def read_elements(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask] * 2


def write_rows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.index_put((mask[:, 0],), x[mask[:, 0]].exp()).cos()


def write_one_value(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.index_put((mask,), torch.tensor(3.0)).cos()


def add_rows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.index_put((mask[:, 0],), x[mask[:, 0]].exp(), accumulate=True)


def first_few(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As many as there are, or three: a size that is the smaller of two."""
    return x[mask[:, 0]][:3].exp()


WAYS = [read_rows, read_columns, read_elements, write_rows, write_one_value, add_rows, first_few]


@pytest.mark.parametrize("function", WAYS)
def test_at_the_places_of_a_mask(function: Callable[..., torch.Tensor]) -> None:
    compiled = bridge.compile(function)
    for seed, share in ((0, 0.5), (1, 0.2), (2, 0.0), (3, 1.0)):
        torch.manual_seed(seed)
        mask = torch.rand(6, 5) < share
        mine = torch.randn(6, 5, requires_grad=True)
        theirs = mine.detach().clone().requires_grad_()
        result, expected = compiled(mine, mask), function(theirs, mask)
        torch.testing.assert_close(result, expected)
        result.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    ways = {way for graph in bridge.inspect(compiled).graphs for way in graph.placement.values()}
    assert Way.GENERATED in ways
    assert Way.FALLBACK not in ways
