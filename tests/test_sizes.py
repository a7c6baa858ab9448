"""Sizes that are made of others: divisions in divisions, the largest of three, numbers with a fraction."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import bridge


def placed(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """The places of the patches of an image, square after square, where a tensor says how large these are."""
    height, width, side = grid.tolist()
    across = torch.arange(width).expand(height, -1)
    squares = across.reshape(height // side, side, width // side, side).permute(0, 2, 1, 3).flatten()
    down = torch.arange(height).unsqueeze(1).expand(-1, width)
    others = down.reshape(height // side, side, width // side, side).permute(0, 2, 1, 3).flatten()
    return torch.stack([squares, others], -1) * x.sum()


def test_divisions_in_divisions_are_compiled_in_time() -> None:
    """TVM knows no sign of a symbol, and writes a division by one with several copies of what is divided."""
    compiled = bridge.compile(placed, options={"timeout": 60})
    for grid in ((4, 6, 2), (9, 3, 3)):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x, torch.tensor(grid)), placed(x, torch.tensor(grid)))
    assert bridge.inspect(compiled).graphs
    assert not [event for event in compiled.ledger.events if event.op != "frame" and event.backend]


def padded(*tensors: torch.Tensor) -> torch.Tensor:
    """Room for the longest of three."""
    longest = torch.sym_max(torch.sym_max(len(tensors[0]), len(tensors[1])), len(tensors[2]))
    return torch.zeros(2, 3, longest) + sum(tensor.sum() for tensor in tensors)


def test_the_largest_of_three_sizes_is_one() -> None:
    compiled = bridge.compile(padded, dynamic=True)
    for lengths in ((3, 5, 4), (7, 2, 6), (2, 3, 8)):
        tensors = [torch.randn(n, requires_grad=True) for n in lengths]
        result, expected = compiled(*tensors), padded(*tensors)
        assert result.stride() == expected.stride()
        torch.testing.assert_close(result, expected)
    assert not compiled.ledger.events


def by_half(x: torch.Tensor) -> torch.Tensor:
    return x * torch.scalar_tensor(x.sum().item() * 0.5 + 1)


def by_a_ratio(x: torch.Tensor) -> torch.Tensor:
    return x * torch.scalar_tensor(x[:, 0].max().item() / x.shape[0])


@pytest.mark.parametrize("function", [by_half, by_a_ratio])
def test_a_number_with_a_fraction_becomes_a_tensor(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """No kernel is given such a number; to write it into memory is no work for one."""
    compiled = bridge.compile(function, dynamic=True)
    for size in (4, 7):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x), function(x))
    assert bridge.inspect(compiled).graphs
    assert not compiled.ledger.select(dead_end="dynamic_shape")


def test_a_size_is_rounded_up() -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        wide = x.new_zeros(math.ceil(x.shape[0] / 32) * 32)
        return torch.cat([x.exp(), wide]).sin()

    compiled = bridge.compile(padded, dynamic=True)
    for size in (5, 32, 33, 70):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), padded(x))
    assert not compiled.ledger
