"""Factors of matrices, and what is solved by them: LU with row exchanges, and QR by reflections."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import Expr, R, T, c_function, dtype_of, extent, number, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import compute, loops, nest, pointwise, reduced, store
from bridge.backends.tvm.ops.indexing import element_count
from bridge.backends.tvm.ops.linear_algebra import solve_triangular, transposed
from bridge.backends.tvm.table import converts

aten = torch.ops.aten


@converts(aten.linalg_lu_factor_ex.default)
def lu_factor_ex(A):
    return factored(A)


@converts(aten.linalg_lu.default)
def lu(A):
    factors, pivots, _ = factored(A)
    return unpacked(factors, pivots)


@converts(aten.lu_unpack.default)
def lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots):
    """What is not wanted has no elements."""
    made = unpacked(LU_data, LU_pivots)
    nothing = R.zeros([0], dtype_of(LU_data))
    return tuple(m if wanted else nothing for m, wanted in zip(made, (unpack_pivots, unpack_data, unpack_data)))


@converts(aten.linalg_lu_solve.default)
def lu_solve(LU, pivots, B, left, adjoint):
    return solved(LU, pivots, B, left, adjoint)


@converts(aten._linalg_det.default)
def det(A, *, given):
    factors, pivots, _ = factored(as_torch_has_it(A, given["A"]))
    diagonal = diagonal_of(factors)
    value = reduced("det", "prod", lambda v: v, diagonal, [len(shape_of(diagonal)) - 1], False)
    return pointwise("signed", lambda v, s: v * s, value, parity(pivots, dtype_of(A))), factors, pivots


@converts(aten._linalg_slogdet.default)
def slogdet(A, *, given):
    factors, pivots, _ = factored(as_torch_has_it(A, given["A"]))
    diagonal = diagonal_of(factors)
    last = [len(shape_of(diagonal)) - 1]
    sign = reduced("sign", "prod", sign_of, diagonal, last, False)
    sign = pointwise("signed", lambda v, s: v * s, sign, parity(pivots, dtype_of(A)))
    size = reduced("logabsdet", "sum", lambda v: tirx.log(tirx.abs(v)), diagonal, last, False)
    return sign, size, factors, pivots


@converts(aten._linalg_solve_ex.default)
def solve_ex(A, B, left, *, sizes):
    """A right side with one dimension less holds vectors."""
    factors, pivots, info = factored(A)
    if len(shape_of(B)) == 1 or shape_of(B) == shape_of(A)[:-1]:
        right = reshaped(B, [*shape_of(B), 1])
        return reshaped(solved(factors, pivots, right, True, False), sizes[0]), factors, pivots, info
    return solved(factors, pivots, B, left, False), factors, pivots, info


@converts(aten.linalg_inv_ex.default)
def inv_ex(A):
    factors, pivots, info = factored(A)
    return solved(factors, pivots, identity_like(A), True, False), info


@converts(aten.triangular_solve.default)
def triangular_solve(x, A, upper, transpose, unitriangular, *, sizes):
    """Matrices and right sides in front of one another are broadcast."""
    matrix = pointwise("copy", lambda v: v, R.broadcast_to(A, sizes[1]))
    given = transposed(matrix) if transpose else matrix
    right = R.broadcast_to(x, sizes[0])
    return solve_triangular(given, right, upper != transpose, True, unitriangular), matrix


@converts(aten.linalg_qr.default)
def qr(A, mode):
    """The signs are those of LAPACK: a reflection takes a column to the other side of its first element."""
    *batch, rows, columns = shape_of(A)
    rank = min(rows, columns)
    reflectors, scales = reflected(A)
    full = mode == "complete"
    upper = triangle(reflectors, [*batch, rows if full else rank, columns], lower=False)
    if mode == "r":
        return R.zeros([0], dtype_of(A)), upper
    return by_reflections(reflectors, scales, [*batch, rows, rows if full else rank]), upper


@converts(aten.geqrf.default)
def geqrf(x):
    return reflected(x)


@converts(aten.linalg_householder_product.default)
def householder_product(input, tau):
    return by_reflections(input, tau, shape_of(input))


def as_torch_has_it(x: Expr, given: torch.Tensor) -> Expr:
    """For a determinant torch factors the transpose of a matrix that lies row by row, and its gradient counts on it."""
    return transposed(x) if given.is_contiguous() else x


def factored(x: Expr) -> tuple[Expr, Expr, Expr]:
    """L below and U above the diagonal, the row that each row was exchanged with, and the first pivot of zero.

    Rows and pivots are counted from one, as in LAPACK; 0 stands for no such pivot.
    """
    *batch, rows, columns = shape_of(x)
    count, rank, name = element_count(batch), min(rows, columns), dtype_of(x)

    def body(out, pivots, info, kept, a):
        nest([count, rows, columns], lambda at: store(out, at, a[tuple(at)]))

        def one(place):
            n = place[0]
            store(info, [n], number(0, "int32"))
            with T.serial(0, extent(rank)) as k:
                exchange_rows(n, k)
                with T.If(tirx.And(out[n, k, k].equal(number(0, name)), info[n].equal(number(0, "int32")))), T.Then():
                    store(info, [n], (k + 1).astype("int32"))
                with T.If(out[n, k, k] != number(0, name)), T.Then(), T.serial(0, extent(rows) - 1 - k) as i:
                    eliminate_row(n, k, k + 1 + i)

        def exchange_rows(n, k):
            store(pivots, [n, k], (k + 1).astype("int32"))
            with T.serial(0, extent(rows) - 1 - k) as i:
                larger = tirx.abs(out[n, k + 1 + i, k]) > tirx.abs(out[n, chosen(n, k), k])
                store(pivots, [n, k], tirx.if_then_else(larger, (k + 2 + i).astype("int32"), pivots[n, k]))
            with T.serial(0, extent(columns)) as j:
                store(kept, [0], out[n, k, j])
                store(out, [n, k, j], out[n, chosen(n, k), j])
                store(out, [n, chosen(n, k), j], kept[0])

        def chosen(n, k):
            return pivots[n, k].astype("int64") - 1

        def eliminate_row(n, k, i):
            store(out, [n, i, k], out[n, i, k] / out[n, k, k])
            with T.serial(0, extent(columns) - 1 - k) as j:
                store(out, [n, i, k + 1 + j], out[n, i, k + 1 + j] - out[n, i, k] * out[n, k, k + 1 + j])

        nest([count], one)

    results = [([count, rows, columns], name), ([count, rank], "int32"), ([count], "int32"), ([1], name)]
    made = loops("lu", results, body, reshaped(x, [count, rows, columns]))
    return reshaped(made[0], shape_of(x)), reshaped(made[1], [*batch, rank]), reshaped(made[2], batch)


def order_of(pivots: Expr, rows: int) -> Expr:
    """Which row each row was before all exchanges, counted from zero."""
    *batch, rank = shape_of(pivots)
    count = element_count(batch)

    def body(order, kept, exchanged):
        nest([count, rows], lambda at: store(order, at, at[1]))

        def one(at):
            n, k = at
            other = exchanged[n, k].astype("int64") - 1
            store(kept, [0], order[n, k])
            store(order, [n, k], order[n, other])
            store(order, [n, other], kept[0])

        nest([count, rank], one)

    made = loops("order", [([count, rows], "int64"), ([1], "int64")], body, reshaped(pivots, [count, rank]))[0]
    return reshaped(made, [*batch, rows])


def unpacked(factors: Expr, pivots: Expr) -> tuple[Expr, Expr, Expr]:
    """P, L and U, whose product is the matrix."""
    *batch, rows, columns = shape_of(factors)
    rank, name = min(rows, columns), dtype_of(factors)

    def element(at, order):
        *front, row, column = at
        return tirx.Select(order(*front, column).equal(row), number(1, name), number(0, name))

    permutation = compute("permutation", [*batch, rows, rows], element, order_of(pivots, rows))
    lower = triangle(factors, [*batch, rows, rank], lower=True)
    return permutation, lower, triangle(factors, [*batch, rank, columns], lower=False)


def triangle(x: Expr, shape: list, lower: bool) -> Expr:
    """What lies above and on the diagonal, or below it with ones on it."""
    zero, one = number(0, dtype_of(x)), number(1, dtype_of(x))

    def element(at, v):
        row, column = at[-2:]
        if lower:
            return tirx.Select(row > column, v(*at), tirx.Select(row.equal(column), one, zero))
        return tirx.Select(row <= column, v(*at), zero)

    return compute("triangle", shape, element, x)


def solved(factors: Expr, pivots: Expr, right: Expr, left: bool, adjoint: bool) -> Expr:
    """What a factored matrix, or its transpose if `adjoint`, has to be multiplied by to give the right side."""
    if not left:
        return transposed(solved(factors, pivots, transposed(right), True, not adjoint))
    batch = list(torch.broadcast_shapes(shape_of(factors)[:-2], shape_of(right)[:-2]))  # type: ignore[arg-type]
    rows = shape_of(factors)[-1]
    factors = R.broadcast_to(factors, [*batch, rows, rows])
    right = R.broadcast_to(right, [*batch, *shape_of(right)[-2:]])
    order = R.broadcast_to(order_of(pivots, rows), [*batch, rows])
    if not adjoint:
        within = solve_triangular(factors, taken_in(order, right), False, True, True)
        return solve_triangular(factors, within, True, True, False)
    within = solve_triangular(transposed(factors), right, False, True, False)
    return put_back(order, solve_triangular(transposed(factors), within, True, True, True))


def taken_in(order: Expr, x: Expr) -> Expr:
    """Rows of x in an order."""
    return compute("rows", shape_of(x), lambda at, o, v: v(*at[:-2], o(*at[:-1]), at[-1]), order, x)


def put_back(order: Expr, x: Expr) -> Expr:
    """Rows of x where they were before they were taken in an order."""
    shape = shape_of(x)
    *batch, rows, columns = shape
    count = element_count(batch)

    def body(out, o, v):
        nest([count, rows, columns], lambda at: store(out, [at[0], o[at[0], at[1]], at[2]], v[tuple(at)]))

    given = reshaped(order, [count, rows]), reshaped(x, [count, rows, columns])
    return reshaped(loops("put_back", [([count, rows, columns], dtype_of(x))], body, *given)[0], shape)


def reflected(x: Expr) -> tuple[Expr, Expr]:
    """R above the diagonal and the reflections below it, each without the one that it begins with; their scales."""
    *batch, rows, columns = shape_of(x)
    count, rank, name = element_count(batch), min(rows, columns), dtype_of(x)
    zero = number(0, name)

    def body(out, scales, kept, a):
        nest([count, rows, columns], lambda at: store(out, at, a[tuple(at)]))

        def one(at):
            n, k = at
            store(kept, [0], zero)
            with T.serial(0, extent(rows) - 1 - k) as i:
                store(kept, [0], c_function("hypot", kept[0], out[n, k + 1 + i, k]))
            store(scales, [n, k], zero)
            with T.If(kept[0] != zero), T.Then():
                reflect(n, k)

        def reflect(n, k):
            first = out[n, k, k]
            length = c_function("hypot", first, kept[0])
            store(kept, [1], tirx.if_then_else(first >= zero, zero - length, length))
            store(scales, [n, k], (kept[1] - first) / kept[1])
            with T.serial(0, extent(rows) - 1 - k) as i:
                store(out, [n, k + 1 + i, k], out[n, k + 1 + i, k] / (first - kept[1]))
            store(out, [n, k, k], kept[1])
            with T.serial(0, extent(columns) - 1 - k) as j:
                mirrored(out, out, scales, kept, n, k, k + 1 + j, rows)

        nest([count, rank], one)

    results = [([count, rows, columns], name), ([count, rank], name), ([2], name)]
    made = loops("reflections", results, body, reshaped(x, [count, rows, columns]))
    return reshaped(made[0], shape_of(x)), reshaped(made[1], [*batch, rank])


def mirrored(out, vectors, scales, kept, n, k, j, rows: int) -> None:
    """Take column j of `out` through reflection k, of which the first element is one and is not kept."""
    store(kept, [0], out[n, k, j])
    with T.serial(0, extent(rows) - 1 - k) as i:
        store(kept, [0], kept[0] + vectors[n, k + 1 + i, k] * out[n, k + 1 + i, j])
    store(kept, [0], kept[0] * scales[n, k])
    store(out, [n, k, j], out[n, k, j] - kept[0])
    with T.serial(0, extent(rows) - 1 - k) as i:
        store(out, [n, k + 1 + i, j], out[n, k + 1 + i, j] - kept[0] * vectors[n, k + 1 + i, k])


def by_reflections(vectors: Expr, scales: Expr, shape: list) -> Expr:
    """The first columns of the product of the reflections."""
    *batch, rows, columns = shape
    count, number_of, name = element_count(batch), shape_of(scales)[-1], dtype_of(vectors)

    def body(out, kept, v, s):
        def unit(at):
            store(out, at, tirx.Select(at[1].equal(at[2]), number(1, name), number(0, name)))

        nest([count, rows, columns], unit)

        def one(at):
            n, step, j = at
            mirrored(out, v, s, kept, n, extent(number_of) - 1 - step, j, rows)

        nest([count, number_of, columns], one)

    given = reshaped(vectors, [count, *shape_of(vectors)[-2:]]), reshaped(scales, [count, number_of])
    return reshaped(loops("by_reflections", [([count, rows, columns], name), ([1], name)], body, *given)[0], shape)


def diagonal_of(x: Expr) -> Expr:
    *batch, rows, columns = shape_of(x)
    return compute("diagonal", [*batch, min(rows, columns)], lambda at, v: v(*at, at[-1]), x)


def parity(pivots: Expr, name: str) -> Expr:
    """-1 for an odd number of exchanges, 1 for an even one."""

    def element(exchanged, *, index):
        stays = exchanged.equal((index[-1] + 1).astype("int32"))
        return tirx.Select(stays, number(1, name), number(-1, name))

    return reduced("parity", "prod", element, pivots, [len(shape_of(pivots)) - 1], False)


def sign_of(v: Expr) -> Expr:
    one = number(1, v)
    return tirx.Select(v > number(0, v), one, tirx.Select(v < number(0, v), number(-1, v), v))


def identity_like(x: Expr) -> Expr:
    name = dtype_of(x)

    def element(at):
        return tirx.Select(at[-1].equal(at[-2]), number(1, name), number(0, name))

    return compute("identity", shape_of(x), element)
