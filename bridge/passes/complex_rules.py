"""What ATen ops do to complex numbers, said of their real and imaginary parts.

A rule takes the arguments of its overload, with a `Complex` for each complex tensor, and gives a `Complex`, a real
tensor, or a list of them. It is written in torch and traced, so it is decomposed as the user's own program is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from bridge.ir.schema import defaults

aten = torch.ops.aten


class Complex(NamedTuple):
    """The parts of a complex tensor: two tensors of one shape and type."""

    re: Tensor
    im: Tensor


PART_OF = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}
"""The type of a part by that of the whole."""

RULES: dict[OpOverload, Callable[..., Any]] = {}
"""What is done in place of an overload."""


def rule(*ops: OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return enter


def as_complex(value: Any, dtype: torch.dtype) -> Complex:
    """A tensor or a number as a complex one with parts of a type."""
    if isinstance(value, Complex):
        return Complex(value.re.to(dtype), value.im.to(dtype))
    if isinstance(value, Tensor):
        return Complex(value.to(dtype), torch.zeros_like(value, dtype=dtype))
    number = complex(value)
    return Complex(torch.full((), number.real, dtype=dtype), torch.full((), number.imag, dtype=dtype))


def both(z: Any, other: Any) -> tuple[Complex, Complex]:
    """Two tensors, or a tensor and a number, of which torch makes something complex, as complex ones of one type."""
    parts = [v.re if isinstance(v, Complex) else v if isinstance(v, Tensor) else 1.0 for v in (z, other)]
    dtype = torch.result_type(parts[0], parts[1])  # type: ignore[call-overload, arg-type]
    return as_complex(z, dtype), as_complex(other, dtype)


# What is done to each part by itself --------------------------------------------------------------------------------

VALUES = ("self", "other", "src", "source", "values", "tensors", "input", "value", "fill_value")
"""Arguments whose numbers go into the result. Of a real one the imaginary part is zero."""

SEPARATELY = (
    aten.alias.default, aten.as_strided.default, aten.cat.default, aten.clone.default, aten.constant_pad_nd.default,
    aten.copy.default, aten.cumsum.default, aten.detach.default, aten.diagonal.default, aten.diagonal_scatter.default,
    aten.expand.default, aten.flip.default, aten.gather.default, aten.index.Tensor, aten.index_put.default,
    aten.index_select.default, aten.mean.dim, aten.neg.default, aten.permute.default, aten.repeat.default,
    aten.roll.default, aten.scatter.src, aten.scatter_add.default, aten.select.int, aten.select_scatter.default,
    aten.slice.Tensor, aten.slice_scatter.default, aten.split_with_sizes.default, aten.split.Tensor,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.sum.default, aten.sum.dim_IntList, aten.t.default,
    aten.transpose.int, aten.tril.default, aten.triu.default, aten.unbind.int, aten.unfold.default,
    aten.unsqueeze.default, aten._unsafe_view.default, aten.view.default, aten.where.self,
)  # fmt: skip


def separately(op: OpOverload) -> Callable[..., Any]:
    """A rule that calls the op once for the real parts and once for the imaginary ones."""

    def of_part(name: str, value: Any, part: Any) -> Any:
        if isinstance(value, Complex):
            return getattr(value, part)
        if name not in VALUES or value is None:
            return value
        if isinstance(value, list):
            return [of_part(name, item, part) for item in value]
        if isinstance(value, Tensor):
            return value if part == "re" else torch.zeros_like(value)
        return getattr(value + 0j, "real" if part == "re" else "imag")

    def done(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(defaults(op), args, strict=False)), **kwargs}
        if given.get("dtype") is not None:
            given["dtype"] = PART_OF[given["dtype"]]
        re, im = (op(**{name: of_part(name, value, part) for name, value in given.items()}) for part in Complex._fields)
        return Complex(re, im) if isinstance(re, Tensor) else [Complex(*parts) for parts in zip(re, im, strict=True)]

    return done


for _op in SEPARATELY:
    RULES[_op] = separately(_op)


# Making and reading ---------------------------------------------------------------------------------------------------


@rule(aten.complex.default)
def complex_(real: Tensor, imag: Tensor) -> Complex:
    return Complex(*torch.broadcast_tensors(real, imag))


@rule(aten.polar.default)
def polar(length: Tensor, angle: Tensor) -> Complex:
    return Complex(length * angle.cos(), length * angle.sin())


@rule(aten.view_as_complex.default)
def view_as_complex(x: Tensor) -> Complex:
    return Complex(x.select(-1, 0), x.select(-1, 1))


@rule(aten.view_as_real.default)
def view_as_real(z: Complex) -> Tensor:
    return torch.stack([z.re, z.im], -1)


@rule(aten._to_copy.default)
def to_copy(z: Complex | Tensor, *, dtype: torch.dtype | None = None, **kept: Any) -> Complex | Tensor:
    """What becomes real loses its imaginary part."""
    if not isinstance(z, Complex):
        re = z.to(PART_OF[dtype])  # type: ignore[index]
        return Complex(re, torch.zeros_like(re))
    if dtype is None:
        return z
    if not dtype.is_complex:
        return aten._to_copy.default(z.re, dtype=dtype)
    return Complex(*(aten._to_copy.default(part, dtype=PART_OF[dtype]) for part in z))


@rule(aten.full.default)
def full(size: Any, fill_value: complex, *, dtype: torch.dtype | None = None, **kept: Any) -> Complex:
    part, value = PART_OF[dtype or torch.complex64], complex(fill_value)
    return Complex(torch.full(size, value.real, dtype=part), torch.full(size, value.imag, dtype=part))


@rule(aten.full_like.default)
def full_like(z: Any, fill_value: complex, *, dtype: torch.dtype | None = None, **kept: Any) -> Complex | Tensor:
    like = z.re if isinstance(z, Complex) else z
    if dtype is not None and not dtype.is_complex:
        return torch.full_like(like, fill_value, dtype=dtype)
    part, value = PART_OF[dtype] if dtype else like.dtype, complex(fill_value)
    return Complex(torch.full_like(like, value.real, dtype=part), torch.full_like(like, value.imag, dtype=part))


@rule(aten.scalar_tensor.default)
def scalar_tensor(value: complex, **kept: Any) -> Complex:
    return full([], value, **kept)


@rule(aten._conj.default, aten._conj_physical.default, aten.conj_physical.default)
def conj(z: Complex) -> Complex:
    return Complex(z.re, -z.im)


@rule(aten.abs.default)
def abs_(z: Complex) -> Tensor:
    return torch.hypot(z.re, z.im)


@rule(aten.angle.default)
def angle(z: Complex) -> Tensor:
    return torch.atan2(z.im, z.re)


# Arithmetic -----------------------------------------------------------------------------------------------------------


@rule(aten.add.Tensor, aten.add.Scalar)
def add(z: Any, other: Any, *, alpha: complex = 1) -> Complex:
    a, b = both(z, other)
    b = b if alpha == 1 else mul(b, alpha)
    return Complex(a.re + b.re, a.im + b.im)


@rule(aten.sub.Tensor, aten.sub.Scalar)
def sub(z: Any, other: Any, *, alpha: complex = 1) -> Complex:
    a, b = both(z, other)
    b = b if alpha == 1 else mul(b, alpha)
    return Complex(a.re - b.re, a.im - b.im)


@rule(aten.rsub.Scalar, aten.rsub.Tensor)
def rsub(z: Any, other: Any, alpha: complex = 1) -> Complex:
    return sub(other, z, alpha=alpha)


@rule(aten.mul.Tensor, aten.mul.Scalar)
def mul(z: Any, other: Any) -> Complex:
    a, b = both(z, other)
    return Complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


@rule(aten.div.Tensor, aten.div.Scalar)
def div(z: Any, other: Any) -> Complex:
    """By the larger part of the divisor first, so that nothing overflows on the way."""
    a, b = both(z, other)
    by_re = b.re.abs() >= b.im.abs()
    large, small = torch.where(by_re, b.re, b.im), torch.where(by_re, b.im, b.re)
    ratio = torch.where(b.re.abs() + b.im.abs() == 0, small, small / large)
    scale = large + small * ratio
    re = torch.where(by_re, a.re + a.im * ratio, a.re * ratio + a.im)
    im = torch.where(by_re, a.im - a.re * ratio, a.im * ratio - a.re)
    return Complex(re / scale, im / scale)


@rule(aten.reciprocal.default)
def reciprocal(z: Complex) -> Complex:
    return div(1.0, z)


@rule(aten.sgn.default)
def sgn(z: Complex) -> Complex:
    length = torch.hypot(z.re, z.im)
    none = length == 0
    return Complex(torch.where(none, 0.0, z.re / length), torch.where(none, 0.0, z.im / length))


@rule(aten.eq.Tensor, aten.eq.Scalar)
def eq(z: Any, other: Any) -> Tensor:
    a, b = both(z, other)
    return (a.re == b.re) & (a.im == b.im)


@rule(aten.ne.Tensor, aten.ne.Scalar)
def ne(z: Any, other: Any) -> Tensor:
    return ~eq(z, other)


# Functions ------------------------------------------------------------------------------------------------------------


@rule(aten.exp.default)
def exp(z: Complex) -> Complex:
    length = z.re.exp()
    return Complex(length * z.im.cos(), length * z.im.sin())


@rule(aten.log.default)
def log(z: Complex) -> Complex:
    return Complex(torch.hypot(z.re, z.im).log(), torch.atan2(z.im, z.re))


@rule(aten.sqrt.default)
def sqrt(z: Complex) -> Complex:
    """In the right half of the plane. The part that is the larger is found by a root, the other by a quotient."""
    large = ((torch.hypot(z.re, z.im) + z.re.abs()) / 2).sqrt()
    small = torch.where(large == 0, 0.0, z.im.abs() / (2 * large))
    right = z.re >= 0
    return Complex(torch.where(right, large, small), torch.where(right, small, large).copysign(z.im))


@rule(aten.sin.default)
def sin(z: Complex) -> Complex:
    return Complex(z.re.sin() * z.im.cosh(), z.re.cos() * z.im.sinh())


@rule(aten.cos.default)
def cos(z: Complex) -> Complex:
    return Complex(z.re.cos() * z.im.cosh(), -z.re.sin() * z.im.sinh())
