"""Equations with a triangular matrix, solved row by row."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import Expr, R, T, dtype_of, extent, reshaped, shape_of
from bridge.backends.tvm.kernels import loops, nest, store
from bridge.backends.tvm.ops.indexing import element_count
from bridge.backends.tvm.table import converts

aten = torch.ops.aten


def no_broadcast(x, B):
    """Matrices in front of one another are solved pair by pair."""
    if x.shape[:-2] != B.shape[:-2]:
        return f"batches of {list(x.shape[:-2])} and {list(B.shape[:-2])}"


@converts(aten.linalg_solve_triangular.default, refuses=no_broadcast, symbolic=True)
def solve_triangular(x, B, upper, left, unitriangular):
    """What lies on the other side of the diagonal is not read."""
    if not left:
        return transposed(solve_triangular(transposed(x), transposed(B), not upper, True, unitriangular))
    *batch, rows, columns = shape_of(B)
    count = element_count(batch)
    matrix, right = reshaped(x, [count, rows, rows]), reshaped(B, [count, rows, columns])

    def body(out, a, b):
        def at(place):
            n, column = place
            with T.serial(0, extent(rows)) as step:
                row = extent(rows) - 1 - step if upper else step
                store(out, [n, row, column], b[n, row, column])
                with T.serial(0, step) as done:
                    known = extent(rows) - 1 - done if upper else done
                    rest = out[n, row, column] - a[n, row, known] * out[n, known, column]
                    store(out, [n, row, column], rest)
                if not unitriangular:
                    store(out, [n, row, column], out[n, row, column] / a[n, row, row])

        nest([count, columns], at)

    made = loops("solve_triangular", [([count, rows, columns], dtype_of(x))], body, matrix, right)[0]
    return reshaped(made, shape_of(B))


def transposed(x: Expr) -> Expr:
    rank = len(shape_of(x))
    return R.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])
