"""Functions whose results are rounded to 16 bits: near enough for each of the 65536 there are, and only there."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import bridge
from tests.backends.tvm.emulated import emulated

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "reciprocal": lambda x: 1 / x,
    "third": lambda x: x / 3,
    "quotient": lambda x: 3 / (x.exp() + 1),
}

OTHERS: dict[str, Function] = {
    "expm1": torch.expm1,
    "elu": F.elu,
    "mish": F.mish,
    "softplus": F.softplus,
    "log1p": torch.log1p,
    "sinh": torch.sinh,
    "atanh": torch.atanh,
    "erfc": torch.erfc,
    "logit": torch.logit,
}

BETTER: dict[str, Function] = {
    "gelu": lambda x: x * torch.special.erfc(x * -math.sqrt(0.5)) / 2,
    "gelu by tanh": lambda x: x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
}
"""Where what is added to 1 would be lost in float64 too."""

GRADIENTS: dict[str, Function] = {"gelu": F.gelu, "silu": F.silu}


def compared(functions: dict[str, Function], dtype: torch.dtype) -> tuple[dict[str, str], str]:
    """Which functions are wrong of which numbers, and the kernels' text."""
    x = every(dtype)
    with emulated() as programs, torch.no_grad():
        compiled = bridge.compile(lambda x: [f(x) for f in functions.values()], options={"cache": False})
        found = dict(zip(functions, compiled(x), strict=True))
    wrong = {name: amiss(found[name], f(x), BETTER.get(name, f)(x.double()), x) for name, f in functions.items()}
    return {name: how for name, how in wrong.items() if how}, "".join(k.script() for k in programs[0].values())


def every(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of 16 bits."""
    return torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype).view(256, 256)


def units_off(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far a result is from an exact one, in units of the last place of its type."""
    info = torch.finfo(found.dtype)
    size = exact.abs().clamp(min=info.tiny, max=info.max)
    unit = 2.0 ** torch.floor(torch.log2(size)) * info.eps
    return (found.double() - exact).abs() / unit


def amiss(found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, x: torch.Tensor) -> str | None:
    """What of a result is neither within a unit of the exact one, nor within twice as much as eager's is off."""
    nearest = exact.to(found.dtype)
    special = ~torch.isfinite(nearest) | (exact == 0)
    same = (found == nearest) & (found.signbit() == nearest.signbit()) | found.isnan() & nearest.isnan()
    if not same[special].all():
        return f"not eager's NaN, infinity or zero at {x[special & ~same][:4]}"
    own, limit = (units_off(t, exact)[~special].nan_to_num() for t in (found, eager))
    bad = own > torch.maximum(2 * limit, torch.ones_like(limit))
    return f"{own[bad].max()} units off at {x[~special][bad & (own == own[bad].max())][:4]}" if bad.any() else None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_number(dtype: torch.dtype) -> None:
    wrong, text = compared(FUNCTIONS, dtype)
    assert wrong == {}
    precise = ('"expf"', '"tanhf"', '"erff"') if dtype == torch.bfloat16 else ('"tanhf"', '"erff"')
    assert not any(function in text for function in precise)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_number_of_others(dtype: torch.dtype) -> None:
    """Functions that have no nearer form, or are made of several."""
    assert compared(OTHERS, dtype)[0] == {}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_every_number(name: str) -> None:
    x, results = every(torch.bfloat16), list[torch.Tensor]()
    with emulated():
        compiled = bridge.compile(GRADIENTS[name], options={"cache": False})
        for function, given in ((compiled, x), (GRADIENTS[name], x), (GRADIENTS[name], x.double())):
            leaf = given.clone().requires_grad_()
            results.append(torch.autograd.grad(function(leaf), leaf, torch.ones_like(leaf))[0])
    found, eager, exact = results
    assert amiss(found, eager, exact, x) is None


EXACT: dict[str, tuple[torch.dtype, Callable[[torch.Tensor], object]]] = {
    "what stays in float32": (torch.float32, lambda x: x.exp()),
    "what is compared": (torch.float32, lambda x: (x.exp() > 2).bfloat16()),
    "what is stored in float32 too": (torch.float32, lambda x: (y := x.exp(), y.bfloat16())),
    "what a function is taken of": (torch.float32, lambda x: x.exp().log().bfloat16()),
    "what becomes a whole number": (torch.float32, lambda x: x.exp().int().bfloat16()),
    "what is added to for a float16": (torch.float32, lambda x: (x.exp() - 2).half()),
    "what is summed and kept in float32": (torch.float32, lambda x: x.exp().sum(-1)),
    "what points at rows": (torch.float32, lambda x: x.bfloat16()[(x.exp() * 0).long()[0]]),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_not_rounded_is_exact(name: str) -> None:
    dtype, function = EXACT[name]
    with emulated() as programs:
        bridge.compile(function, options={"cache": False})(torch.randn(8, 64, dtype=dtype))
    text = "".join(kernel.script() for kernel in programs[0].values())
    assert '"expf"' in text
    assert "bridge_exp2" not in text


def test_what_is_summed_and_rounded_is_near() -> None:
    with emulated() as programs:
        bridge.compile(lambda x: F.softmax(x, -1), options={"cache": False})(torch.randn(8, 64, dtype=torch.bfloat16))
    (kernel,) = programs[0].values()
    assert "bridge_exp2" in kernel.script()
    assert '"expf"' not in kernel.script()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_quotients_by_what_a_row_has_one_of(dtype: torch.dtype) -> None:
    """Of rows of every size, as small as any number and as large, and of zeros."""
    info, rows = torch.finfo(dtype), torch.rand(9, 64) + 0.5
    sizes = [0.0, info.tiny * info.eps, info.tiny / 2, info.tiny, info.eps, 1, 1 / info.eps, info.max / 200, info.max]
    x = (rows * torch.tensor(sizes)[:, None]).to(dtype)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x / x.amax(-1, keepdim=True)

    with emulated() as programs:
        found = bridge.compile(function, options={"cache": False})(x)
    assert amiss(found, function(x), function(x.double()), x) is None
    (kernel,) = programs[0].values()
    assert "bridge_divided" not in kernel.script()
