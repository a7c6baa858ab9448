"""Our own functions of float32 are within two units in the last place, and keep NaN, infinity, denormals and -0."""

from __future__ import annotations

import math

import pytest
import torch

import bridge

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-39, -1e-39, 88.7, 89.0, -87.4, -103.9, -110.0]


def inputs() -> torch.Tensor:
    """Special values, a fine walk over where exp is finite, and numbers of every size. 20 000 and a few."""
    random = torch.Generator().manual_seed(0)
    spread = [torch.randn(4000, generator=random) * scale for scale in (0.1, 1.0, 20.0)]
    sizes = torch.exp(torch.randn(4000, generator=random) * 20)
    return torch.cat([torch.tensor(SPECIAL), *spread, sizes, -sizes[:100], torch.linspace(-104, 89, 4003)])


def units_off(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far a float32 result is from a float64 one, in units of the last place; those below 2^-126 are as there."""
    unit = 2.0 ** (torch.floor(torch.log2(exact.abs().clamp(min=2.0**-126))) - 23)
    return (found.double() - exact).abs() / unit


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "erf"])
def test_function(name: str) -> None:
    x = inputs()
    function = getattr(torch, name)
    with torch.no_grad():
        compiled = bridge.compile(lambda x: function(x))
        found = compiled(x)
    (graph,) = bridge.inspect(compiled).graphs
    assert graph.kernel_calls == 1
    assert not graph.callouts
    exact = function(x.double())
    rounded = exact.float()
    finite = torch.isfinite(rounded)
    if name == "sigmoid":  # the exponential overflows, in torch too
        finite &= x > -88.7
    assert units_off(found[finite], exact[finite]).max() <= 2.5
    unbounded = ~torch.isfinite(rounded)
    torch.testing.assert_close(found[unbounded], rounded[unbounded], rtol=0, atol=0, equal_nan=True)
    zero = rounded == 0
    assert torch.equal(torch.signbit(found[zero & finite]), torch.signbit(rounded[zero & finite]))
