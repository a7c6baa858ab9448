"""Fourier transforms as products with the matrix of the roots of unity, for `library=False`: MKL takes less time.

Y[k] = Σ_j X[j] · exp(∓2πi·jk/n), one dimension after the other (Cooley and Tukey, 1965, equation 1). jk is taken modulo
n before it becomes an angle, and angles are float64, so that a matrix is right to the last bit of its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from bridge.ir.shapes import fake
from bridge.passes.complex_rules import Complex

aten = torch.ops.aten

LARGEST = 2048
"""The longest dimension that is transformed by a matrix: that takes n multiplications where others take log n."""


def takes(node: fx.Node) -> bool:
    """Whether a transform is over dimensions short enough."""
    given, result = fake(node.args[0]), fake(node)
    return all(max(given.shape[dim], result.shape[dim]) <= LARGEST for dim in node.args[1])  # type: ignore[union-attr]


def c2c(x: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    for one in dim:
        n = x.re.shape[one]
        cos, sin = _roots(x.re, n, n, forward)
        along = _along(one)
        x = Complex(along(x.re, cos) - along(x.im, sin), along(x.re, sin) + along(x.im, cos))
    return _scaled(x, [x.re.shape[one] for one in dim], normalization)


def r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """The last of the dimensions goes first, and only its first half is kept if `onesided`: the other mirrors it."""
    *others, last = dim
    n = x.shape[last]
    cos, sin = _roots(x, n, n // 2 + 1 if onesided else n, True)
    along = _along(last)
    y = c2c(Complex(along(x, cos), along(x, sin)), others, 0, True)
    return _scaled(y, [x.shape[one] for one in dim], normalization)


def c2r(x: Complex, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """The inverse of a transform whose last dimension was halved: what the other half mirrors counts twice."""
    *others, last = dim
    half, n = x.re.shape[last], last_dim_size
    y = c2c(x, others, 0, False)
    places = torch.arange(half, device=x.re.device)
    once = (places == 0) | (places * 2 == n)
    weight = torch.where(once, 1.0, 2.0).to(x.re.dtype)
    cos, sin = (part.narrow(0, 0, half) * weight[:, None] for part in _roots(x.re, n, n, False))
    along = _along(last)
    sizes = [n if one == last else x.re.shape[one] for one in dim]
    result, _ = _scaled(Complex(along(y.re, cos) - along(y.im, sin), y.re), sizes, normalization)
    return result


def _roots(like: Tensor, n: int, columns: int, forward: bool) -> Complex:
    """cos and sin of ∓2πjk/n, a row for each j up to n and a column for each k."""
    j, k = torch.arange(n, device=like.device), torch.arange(columns, device=like.device)
    angle = (j[:, None] * k % n).to(torch.float64) * ((-2 if forward else 2) * math.pi / n)
    return Complex(angle.cos().to(like.dtype), angle.sin().to(like.dtype))


def _along(dim: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A product with a matrix along a dimension. A single row is one of a matrix, as torch would make it in place."""

    def product(x: Tensor, matrix: Tensor) -> Tensor:
        return (x[None] @ matrix)[0] if x.dim() == 1 else (x.movedim(dim, -1) @ matrix).movedim(-1, dim)

    return product


def _scaled(x: Complex, sizes: Sequence[int], normalization: int) -> Complex:
    """normalization: 0 for none, 1 for the root of the number of elements, 2 for their number, as ATen counts."""
    count = math.prod(sizes)
    scale = (1.0, count**-0.5 if count else 1.0, 1 / count if count else 1.0)[normalization]
    return x if scale == 1 else Complex(x.re * scale, x.im * scale)


TRANSFORMS: Mapping[OpOverload, Callable[..., Any]] = {
    aten._fft_c2c.default: c2c,
    aten._fft_r2c.default: r2c,
    aten._fft_c2r.default: c2r,
}
"""Rules as those of `complex_rules`."""
