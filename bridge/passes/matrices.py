"""Functions of matrices written by their singular values or eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def inverted(values: Tensor, atol: Tensor | None, rtol: Tensor | None, larger_side: int) -> Tensor:
    """1 / values (…, n), and 0 for those that are too small, by their size, to count."""
    size = values.abs()
    default = torch.finfo(values.dtype).eps * larger_side
    if rtol is None and atol is not None:
        rtol = torch.where(atol > 0, 0.0, default)
    bound = size.amax(-1, keepdim=True) * (default if rtol is None else rtol.unsqueeze(-1))
    if atol is not None:
        bound = torch.maximum(bound, atol.unsqueeze(-1).to(bound.dtype))
    return torch.where(size > bound, values.reciprocal(), 0.0)


def pseudoinverse(x: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Any:
    if x.is_complex():
        return NotImplemented
    if x.numel() == 0:
        return torch.zeros_like(x.mT)
    larger_side = max(x.shape[-2:])
    if hermitian:
        values, vectors = aten._linalg_eigh.default(x)
        scaled = vectors * inverted(values, atol, rtol, larger_side).unsqueeze(-2)
        return scaled @ vectors.mT
    left, values, right = aten._linalg_svd.default(x)
    return (right.mT * inverted(values, atol, rtol, larger_side).unsqueeze(-2)) @ left.mT


def square_root(x: Tensor) -> Any:
    if x.is_complex():
        return NotImplemented
    values, vectors = aten._linalg_eigh.default(x)
    return (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT


def polar(A: Tensor) -> Any:
    if A.is_complex():
        return NotImplemented
    left, values, right = aten._linalg_svd.default(A)
    return left @ right, (right.mT * values.unsqueeze(-2)) @ right


def present(**written: Callable[..., Any]) -> dict[OpOverload, Callable[..., Any]]:
    """The functions by their overloads, of those that this torch has."""
    return {getattr(aten, name).default: how for name, how in written.items() if hasattr(aten, name)}


MATRICES: dict[OpOverload, Callable[..., Any]] = {
    aten.linalg_pinv.atol_rtol_tensor: pseudoinverse,
    **present(linalg_matrix_sqrth=square_root, linalg_polar=polar),
}
"""How they are written, by overload."""
