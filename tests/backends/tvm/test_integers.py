"""Integers wrap around and raise as torch's do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import bridge

WRAPPING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "compared": lambda x: x + 1 > x,
    "halved": lambda x: x * 2 // 2 == x,
    "product": lambda x: x * 3 // 3,
    "smaller": lambda x: torch.minimum(x + 1, x),
    "absolute": lambda x: x.abs() >= 0,
    "negative": lambda x: -x < 0,
    "square": lambda x: x * x,
    "sum": lambda x: (x + x).sum(dtype=x.dtype),
    "product of all": lambda x: x.prod(dtype=x.dtype),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
def test_integers_wrap_around(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([info.max, info.min, info.max - 1, info.min + 1, 3, 0] * 7, dtype=dtype)
    compiled = bridge.compile(lambda x: [function(x) for function in WRAPPING.values()])
    for name, mine in zip(WRAPPING, compiled(x), strict=True):
        assert torch.equal(mine, WRAPPING[name](x)), name
    assert all(ways["fallback"] == 0 for ways in compiled.placement.values())


@pytest.mark.parametrize(
    "divide",
    [
        lambda x, y: x // y,
        lambda x, y: x % y,
        torch.fmod,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        lambda x, y: 7 % y,
    ],
)
def test_a_division_by_zero_raises(divide: Callable[..., torch.Tensor]) -> None:
    x, y = torch.tensor([4, -5]), torch.tensor([3, -2])
    compiled = bridge.compile(divide)
    assert torch.equal(compiled(x, y), divide(x, y))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, y * 0)


def test_a_division_by_a_number_is_generated() -> None:
    x = torch.tensor([4, -5, torch.iinfo(torch.int64).min])
    compiled = bridge.compile(lambda x: (x // 3, x % -4, torch.fmod(x, 5), x // 1))
    for mine, theirs in zip(compiled(x), (x // 3, x % -4, torch.fmod(x, 5), x // 1), strict=True):
        assert torch.equal(mine, theirs)
    assert all(ways["fallback"] == 0 < ways["generated"] for ways in compiled.placement.values())
