"""Matrix products, as plain reductions. Used where the library is not."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import Expr, R, dtype_of, shape_of
from bridge.backends.tvm.kernels import binary, compute, reduction, scalar
from bridge.backends.tvm.table import Accumulate, converts

aten = torch.ops.aten


@converts(aten.mm.default, accumulate=Accumulate.OPMATH, symbolic=True)
def mm(x, mat2):
    return product(x, mat2)


@converts(aten.bmm.default, accumulate=Accumulate.OPMATH, symbolic=True)
def bmm(x, mat2):
    return product(x, mat2)


@converts(aten.addmm.default, accumulate=Accumulate.OPMATH, symbolic=True)
def addmm(x, mat1, mat2, beta, alpha):
    return blended(x, product(mat1, mat2), beta, alpha)


@converts(aten.baddbmm.default, accumulate=Accumulate.OPMATH, symbolic=True)
def baddbmm(x, batch1, batch2, beta, alpha):
    return blended(x, product(batch1, batch2), beta, alpha)


@converts(aten.addbmm.default, accumulate=Accumulate.OPMATH, symbolic=True)
def addbmm(x, batch1, batch2, beta, alpha):
    """The products of all pairs are summed."""
    count, rows, inner = shape_of(batch1)
    columns = shape_of(batch2)[2]

    def element(at, over, a, b):
        return a(over[0], at[0], over[1]) * b(over[0], over[1], at[1])

    summed = reduction("addbmm", "sum", [rows, columns], [count, inner], element, batch1, batch2)
    return blended(x, summed, beta, alpha)


@converts(aten.mv.default, accumulate=Accumulate.OPMATH, symbolic=True)
def mv(x, vec):
    return times_vector(x, vec)


@converts(aten.addmv.default, accumulate=Accumulate.OPMATH, symbolic=True)
def addmv(x, mat, vec, beta, alpha):
    return blended(x, times_vector(mat, vec), beta, alpha)


@converts(aten.dot.default, accumulate=Accumulate.OPMATH, symbolic=True)
def dot(x, tensor):
    return reduction("dot", "sum", [], shape_of(x), lambda at, over, a, b: a(*over) * b(*over), x, tensor)


@converts(aten._trilinear.default, accumulate=Accumulate.OPMATH, symbolic=True)
def trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim):
    """The products of three tensors, each without the dimensions that it is expanded over, summed over some."""
    tensors = [i1, i2, i3]
    missing = [list(dims) for dims in (expand1, expand2, expand3)]
    rank = len(shape_of(i1)) + len(missing[0])
    held = [[d for d in range(rank) if d not in dims] for dims in missing]
    size = {d: n for dims, x in zip(held, tensors, strict=True) for d, n in zip(dims, shape_of(x), strict=True)}
    kept = [d for d in range(rank) if d not in sumdim]

    def element(at, over, *inputs):
        place = dict(zip(kept, at, strict=True)) | dict(zip(sumdim, over, strict=True))
        a, b, c = (v(*(place[d] for d in dims)) for v, dims in zip(inputs, held, strict=True))
        return a * b * c

    if not sumdim:
        return compute("trilinear", [size[d] for d in kept], lambda at, *inputs: element(at, (), *inputs), *tensors)
    return reduction("trilinear", "sum", [size[d] for d in kept], [size[d] for d in sumdim], element, *tensors)


def product(a: Expr, b: Expr) -> Expr:
    """The matrix product of the last two dimensions; any in front of them are equal."""
    *batch, rows, inner = shape_of(a)
    columns = shape_of(b)[-1]

    def element(at, over, x, y):
        *front, row, column = at
        return x(*front, row, over[0]) * y(*front, over[0], column)

    return reduction("matmul", "sum", [*batch, rows, columns], [inner], element, a, b)


def times_vector(matrix: Expr, vector: Expr) -> Expr:
    rows, inner = shape_of(matrix)
    return reduction(
        "mv", "sum", [rows], [inner], lambda at, over, m, v: m(at[0], over[0]) * v(over[0]), matrix, vector
    )


def blended(x: Expr, made: Expr, beta, alpha) -> Expr:
    """beta times x plus alpha times the product. With a beta of 0 nothing of x is read, not even a NaN."""
    name = dtype_of(made)
    if alpha != 1:
        made = binary(R.multiply, made, scalar(alpha, name))
    if isinstance(beta, (int, float)) and beta == 0:
        return made
    return binary(R.add, x if beta == 1 else binary(R.multiply, x, scalar(beta, name)), made)
