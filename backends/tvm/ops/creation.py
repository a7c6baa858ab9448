"""Tensors made from sizes and numbers, and the same numbers in another type."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import Expr, R, converted, dtype_name, number, tirx
from bridge.backends.tvm.kernels import cast, compute, scalar
from bridge.backends.tvm.table import converts

aten = torch.ops.aten
prims = torch.ops.prims


@converts(aten.full.default, symbolic=True)
def full(size, fill_value, dtype, *, out, sizes):
    return filled(sizes, fill_value, out)


@converts(aten.new_full.default, symbolic=True)
def new_full(x, size, fill_value, dtype, *, out, sizes):
    return filled(sizes, fill_value, out)


@converts(aten.full_like.default, symbolic=True)
def full_like(x, fill_value, dtype, *, out, sizes):
    return filled(sizes, fill_value, out)


@converts(aten.fill.Scalar, symbolic=True)
def fill(x, value, *, out, sizes):
    return filled(sizes, value, out)


@converts(aten.fill.Tensor, symbolic=True)
def fill_tensor(x, value, *, out, sizes):
    return R.broadcast_to(cast(value, dtype_name(out.dtype)), sizes)


@converts(aten.scalar_tensor.default, symbolic=True)
def scalar_tensor(s, dtype, *, out):
    return filled([], s, out)


@converts(aten.zeros.default, aten._efficientzerotensor.default, symbolic=True)
def zeros(size, dtype, *, out, sizes):
    return filled(sizes, 0, out)


@converts(aten.new_zeros.default, symbolic=True)
def new_zeros(x, size, dtype, *, out, sizes):
    return filled(sizes, 0, out)


@converts(aten.zeros_like.default, symbolic=True)
def zeros_like(x, dtype, *, out, sizes):
    return filled(sizes, 0, out)


@converts(aten.ones.default, symbolic=True)
def ones(size, dtype, *, out, sizes):
    return filled(sizes, 1, out)


@converts(aten.new_ones.default, symbolic=True)
def new_ones(x, size, dtype, *, out, sizes):
    return filled(sizes, 1, out)


@converts(aten.ones_like.default, symbolic=True)
def ones_like(x, dtype, *, out, sizes):
    return filled(sizes, 1, out)


@converts(aten.empty.memory_format, symbolic=True)
def empty(size, dtype, *, out, sizes):
    """Any values would do; zeros are the same each time."""
    return filled(sizes, 0, out)


@converts(aten.new_empty.default, symbolic=True)
def new_empty(x, size, dtype, *, out, sizes):
    return filled(sizes, 0, out)


@converts(aten.empty_like.default, symbolic=True)
def empty_like(x, dtype, *, out, sizes):
    return filled(sizes, 0, out)


@converts(aten.empty_strided.default, symbolic=True)
def empty_strided(size, stride, dtype, *, out, sizes):
    """Strides are the edge's."""
    return filled(sizes, 0, out)


@converts(aten.new_empty_strided.default, symbolic=True)
def new_empty_strided(x, size, stride, dtype, *, out, sizes):
    return filled(sizes, 0, out)


@converts(aten.empty_permuted.default, symbolic=True)
def empty_permuted(size, physical_layout, dtype, *, out, sizes):
    return filled(sizes, 0, out)


@converts(aten.arange.start_step, symbolic=True)
def arange(start, end, step, dtype, *, out, sizes):
    return counted(start, step, out, sizes)


@converts(aten.arange.start, symbolic=True)
def arange_start(start, end, dtype, *, out, sizes):
    return counted(start, 1, out, sizes)


@converts(aten.arange.default, symbolic=True)
def arange_end(end, dtype, *, out, sizes):
    return counted(0, 1, out, sizes)


@converts(prims.iota.default, symbolic=True)
def iota(length, start, step, dtype, requires_grad, *, out, sizes):
    return counted(start, step, out, sizes)


@converts(aten.linspace.default)
def linspace(start, end, steps, dtype, *, out):
    """The second half counts from the end, as in torch."""
    wide = "float64"
    step = (end - start) / max(steps - 1, 1)

    def element(index):
        i = index[0]
        low = number(start, wide) + i.astype(wide) * number(step, wide)
        high = number(end, wide) - (number(steps - 1, wide) - i.astype(wide)) * number(step, wide)
        return converted(tirx.Select(i < (steps + 1) // 2, low, high), dtype_name(out.dtype))

    return compute("linspace", [steps], element)


@converts(aten.eye.default, symbolic=True)
def eye(n, dtype, *, out, sizes):
    return diagonal_of_ones(out, sizes)


@converts(aten.eye.m, symbolic=True)
def eye_m(n, m, dtype, *, out, sizes):
    return diagonal_of_ones(out, sizes)


@converts(aten._to_copy.default, symbolic=True)
def to_copy(x, dtype, *, out):
    return cast(x, dtype_name(out.dtype))


@converts(prims.convert_element_type.default, symbolic=True)
def convert_element_type(a, dtype):
    return cast(a, dtype_name(dtype))


@converts(aten.copy.default, symbolic=True)
def copy(x, src, *, out, sizes):
    """Nothing of the tensor that is copied into remains."""
    return R.broadcast_to(cast(src, dtype_name(out.dtype)), sizes)


def filled(sizes, value, out: torch.Tensor) -> Expr:
    """One number everywhere. TVM's own `full` fails on infinities."""
    name = dtype_name(out.dtype)
    if isinstance(value, (int, float)):
        return compute("full", sizes, lambda index: number(value, name))
    return R.broadcast_to(scalar(value, name), sizes)


def counted(start, step, out: torch.Tensor, sizes) -> Expr:
    """start, start + step, ...; floats are counted in float64."""
    name = dtype_name(out.dtype)
    wide = "float64" if out.dtype.is_floating_point else "int64"

    def element(index):
        return converted(in_type(start, wide) + index[0].astype(wide) * in_type(step, wide), name)

    return compute("arange", sizes, element)


def in_type(value, name: str) -> Expr:
    return number(value, name) if isinstance(value, (int, float)) else converted(value, name)


def diagonal_of_ones(out: torch.Tensor, sizes) -> Expr:
    return compute("eye", sizes, lambda index: converted(index[0].equal(index[1]), dtype_name(out.dtype)))
