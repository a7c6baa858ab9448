"""Cholesky's factor of a matrix, and what is solved by it."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import Expr, R, T, dtype_of, extent, number, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import loops, nest, store
from bridge.backends.tvm.ops.factorisation import identity_like
from bridge.backends.tvm.ops.indexing import element_count
from bridge.backends.tvm.ops.linear_algebra import solve_triangular, transposed
from bridge.backends.tvm.table import converts

aten = torch.ops.aten


@converts(aten.linalg_cholesky_ex.default)
def cholesky_ex(x, upper):
    factor, info = cholesky(transposed(x) if upper else x)
    return transposed(factor) if upper else factor, info


@converts(aten.cholesky_solve.default)
def cholesky_solve(x, input2, upper, *, sizes):
    factor = R.broadcast_to(input2, [*sizes[:-2], *shape_of(input2)[-2:]])
    return by_cholesky(factor, R.broadcast_to(x, sizes), upper)


@converts(aten.cholesky_inverse.default)
def cholesky_inverse(x, upper):
    return by_cholesky(x, identity_like(x), upper)


def cholesky(x: Expr) -> tuple[Expr, Expr]:
    """The factor below and on the diagonal, of what stands there; and the first row, from one, that is not positive."""
    *batch, rows, _ = shape_of(x)
    count, name = element_count(batch), dtype_of(x)
    zero = number(0, name)

    def body(out, info, a):
        nest([count, rows, rows], lambda at: store(out, at, tirx.Select(at[1] >= at[2], a[tuple(at)], zero)))

        def one(place):
            n = place[0]
            store(info, [n], number(0, "int32"))
            with T.serial(0, extent(rows)) as k:
                with T.serial(0, k) as j:
                    store(out, [n, k, k], out[n, k, k] - out[n, k, j] * out[n, k, j])
                failed = tirx.And(tirx.Not(out[n, k, k] > zero), info[n].equal(number(0, "int32")))
                with T.If(failed), T.Then():
                    store(info, [n], (k + 1).astype("int32"))
                with T.If(info[n].equal(number(0, "int32"))), T.Then():
                    store(out, [n, k, k], tirx.sqrt(out[n, k, k]))
                    with T.serial(0, extent(rows) - 1 - k) as i:
                        below(n, k, k + 1 + i)

        def below(n, k, i):
            with T.serial(0, k) as j:
                store(out, [n, i, k], out[n, i, k] - out[n, i, j] * out[n, k, j])
            store(out, [n, i, k], out[n, i, k] / out[n, k, k])

        nest([count], one)

    results = [([count, rows, rows], name), ([count], "int32")]
    factor, info = loops("cholesky", results, body, reshaped(x, [count, rows, rows]))
    return reshaped(factor, shape_of(x)), reshaped(info, batch)


def by_cholesky(factor: Expr, right: Expr, upper: bool) -> Expr:
    """What a matrix of which Cholesky's factor is given has to be multiplied by."""
    other = transposed(factor)
    lower, above = (other, factor) if upper else (factor, other)
    return solve_triangular(above, solve_triangular(lower, right, False, True, False), True, True, False)
