"""Matrix products of groups of rows, each group with a matrix of its own: mixtures of experts."""

from __future__ import annotations

from bridge.backends.tvm.compat import T, dtype_of, number, shape_of, tirx
from bridge.backends.tvm.kernels import loops, nest, reduction, store
from bridge.backends.tvm.table import Accumulate, converts_when_there


@converts_when_there("transformers.grouped_mm_fallback.default", accumulate=Accumulate.OPMATH, symbolic=True)
def grouped_mm(input, weight, offs):
    """Group g is the rows before offs[g] that are in no group before it. Rows in no group give zeros."""
    groups, inner, columns = shape_of(weight)

    def element(at, over, x, w, group):
        i, j = at
        product = x(i, over[0]) * w(tirx.min(group(i), groups - 1), over[0], j)
        return tirx.Select(group(i) < groups, product, number(0, product))

    rows = shape_of(input)[0]
    return reduction("grouped_product", "sum", [rows, columns], [inner], element, input, weight, groups_of(rows, offs))


@converts_when_there("transformers.grouped_mm_fallback_backward.default", accumulate=Accumulate.OPMATH, symbolic=True)
def grouped_mm_backward(input, weight, offs, grad_output):
    (rows, inner), (groups, _, columns), name = shape_of(input), shape_of(weight), dtype_of(input)
    group = groups_of(rows, offs)

    def of_input(at, over, w, grad, group):
        i, k = at
        product = grad(i, over[0]) * w(tirx.min(group(i), groups - 1), k, over[0])
        return tirx.Select(group(i) < groups, product, number(0, product))

    def of_weight(out, x, grad, group):
        nest([groups, inner, columns], lambda place: store(out, place, number(0, name)))
        with T.serial(0, rows) as i, T.If(group[i] < groups), T.Then(), T.grid(inner, columns) as (k, j):
            store(out, [group[i], k, j], out[group[i], k, j] + x[i, k] * grad[i, j])

    grad_input = reduction("grouped_input", "sum", [rows, inner], [columns], of_input, weight, grad_output, group)
    return grad_input, loops("grouped_weight", [(shape_of(weight), name)], of_weight, input, grad_output, group)[0]


def groups_of(rows, offs):
    """The number of the group that each row belongs to, or the number of groups for one that is in none."""

    def element(at, over, end):
        return tirx.Select(end(over[0]) <= at[0], tirx.const(1, "int64"), tirx.const(0, "int64"))

    return reduction("group", "sum", [rows], shape_of(offs), element, offs)
