"""Masks as indices: what is done at their places is generated, and as eager does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    rows = mask[:, 0]
    return x.index_put((rows,), x[rows].exp()).cos()


def write_one_value(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.index_put((mask,), torch.tensor(3.0)).cos()


def write_one_row(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.index_put((mask[:, 0],), x[0].exp()).cos()


def write_one_column(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.index_put(x, [None, mask[0]], x[:, :1].exp()).cos()


def write_a_value_beside(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mask has two of three dimensions, and the values are the same at all its places."""
    wide = torch.stack([x, x * 2])
    return torch.ops.aten.index_put(wide, [None, mask], x[:2, :1].exp(), accumulate=True).cos()


def write_the_same_to_all_rows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    columns = mask[0]
    return torch.ops.aten.index_put(x, [None, columns], x[2, columns].exp()).cos()


def add_rows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows = mask[:, 0]
    return x.index_put((rows,), x[rows].exp(), accumulate=True)


def first_few(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As many as there are, or three: a size that is the smaller of two."""
    return x[mask[:, 0]][:3].exp()


WAYS = [
    *(read_rows, read_columns, read_elements, write_rows, write_one_value, write_one_row, write_one_column),
    *(write_a_value_beside, write_the_same_to_all_rows, add_rows, first_few),
]


def compiled_as_eager(function: Callable[..., torch.Tensor], library: bool) -> Any:
    """The function compiled, after it gave what eager gives, gradients too, for masks that hold more or less often."""
    compiled = bridge.compile(function, library=library)
    for seed, share in ((0, 0.5), (1, 0.2), (2, 0.0), (3, 1.0)):
        torch.manual_seed(seed)
        mask = torch.rand(6, 5) < share
        mine = torch.randn(6, 5, requires_grad=True)
        theirs = mine.detach().clone().requires_grad_()
        result, expected = compiled(mine, mask), function(theirs, mask)
        torch.testing.assert_close(result, expected)
        if expected.requires_grad:
            result.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(mine.grad, theirs.grad)
    return compiled


@pytest.mark.parametrize("function", WAYS)
def test_at_the_places_of_a_mask(function: Callable[..., torch.Tensor]) -> None:
    compiled = compiled_as_eager(function, library=True)
    ways = {way for graph in bridge.inspect(compiled).graphs for way in graph.placement.values()}
    assert Way.GENERATED in ways
    assert Way.FALLBACK not in ways
    assert not compiled.ledger.select(kind="laid out anew")


def holding(*places: int) -> torch.Tensor:
    mask = torch.zeros(6, dtype=torch.bool)
    mask[list(places)] = True
    return mask


def test_places_of_several_dimensions_are_no_mask() -> None:
    """What is read at them has more dimensions than what they point into, and so has its gradient."""
    compiled, places = bridge.compile(lambda x, places: x[:, places].exp()), torch.tensor([[0, 2], [1, 1], [3, 0]])
    x = torch.randn(3, 4, requires_grad=True)
    (found,), (exactly,) = (torch.autograd.grad(f(x, places).sum(), x) for f in (compiled, lambda x, p: x[:, p].exp()))
    torch.testing.assert_close(found, exactly)
    assert not compiled.ledger


@pytest.mark.parametrize("library", [True, False])
def test_more_or_fewer_values_than_places_raise(library: bool) -> None:
    compiled = bridge.compile(lambda x, mask, values: x.index_put((mask,), values).cos(), library=library)
    x, values = torch.zeros(6, 2), torch.randn(3, 2)
    torch.testing.assert_close(compiled(x, holding(0, 2, 5), values)[5], values[2].cos())
    for mask in (holding(0, 2), holding(0, 1, 2, 3)):
        with pytest.raises(RuntimeError, match="shape mismatch: 3 values"):
            compiled(x, mask, values)


def test_a_single_value_of_another_mask_is_written_everywhere() -> None:
    def function(x: torch.Tensor, to: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        return x.index_put((to,), x.exp()[of]).cos()

    compiled, x, to = bridge.compile(function), torch.randn(6, 2), holding(1, 2, 5)
    for of in (holding(0, 3, 4), holding(3)):
        torch.testing.assert_close(compiled(x, to, of), function(x, to, of))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        compiled(x, to, holding(0, 1))
