"""Without a library, Fourier transforms are products with matrices, up to a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fft import fft, hfft, ifft2, irfft, irfft2, rfft, rfftn

import bridge
from bridge.ledger import Way
from bridge.passes.fourier import LARGEST

whole, pairs = torch.view_as_complex, torch.view_as_real

TRANSFORMED: dict[str, Callable[..., Any]] = {
    "fft": lambda x: pairs(fft(whole(x))),
    "two of a real one": lambda x: fft(fft(x, dim=-1), dim=-2).real,
    "of one dimension": lambda x: pairs(fft(whole(x).reshape(-1))),
    "ifft2, by the root": lambda x: pairs(ifft2(whole(x), norm="ortho")),
    "rfft": lambda x: pairs(rfft(x, dim=1)),
    "rfftn, by the number": lambda x: pairs(rfftn(x, dim=(2, 0, 1), norm="forward")),
    "irfft to an even size": lambda x: irfft(whole(x), dim=1),
    "irfft2 to an odd size": lambda x: irfft2(whole(x), s=(4, 7), norm="ortho"),
    "hfft": lambda x: hfft(whole(x)),
}


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transform(name: str, dtype: torch.dtype) -> None:
    compiled = bridge.compile(TRANSFORMED[name], library=False)
    mine = torch.randn(5, 6, 2, dtype=dtype, requires_grad=True)
    theirs = mine.detach().clone().requires_grad_()
    result, expected = compiled(mine), TRANSFORMED[name](theirs)
    torch.testing.assert_close(result, expected)
    result.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    ways = {way for graph in bridge.inspect(compiled).graphs for way in graph.placement.values()}
    assert ways == {Way.GENERATED}


def test_a_long_one_falls_back() -> None:
    compiled = bridge.compile(lambda x: pairs(rfft(x)), library=False)
    x = torch.randn(LARGEST + 1)
    torch.testing.assert_close(compiled(x), pairs(rfft(x)))
    (event,) = [event for event in bridge.inspect(compiled).ledger if event.op == "aten._fft_r2c.default"]
    assert event.backend == "eager"
