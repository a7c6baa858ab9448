"""Positions of elements that are not zero, as many as are asked for."""

from __future__ import annotations

import math

import torch

from bridge.backends.tvm.compat import T, extent, is_true, number, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import loops, nest, store
from bridge.backends.tvm.table import converts

aten = torch.ops.aten


@converts(aten.nonzero_static.default, symbolic=True)
def nonzero_static(x, size, fill_value):
    """In the order of the elements; the rows that are left over are filled."""
    shape = shape_of(x)
    count = math.prod(shape)

    def body(out, found, v):
        nest([size, len(shape)], lambda at: store(out, at, number(fill_value, "int64")))
        store(found, [0], number(0, "int64"))
        if isinstance(count, int) and not count:
            return
        with T.serial(0, extent(count)) as place, T.If(tirx.And(is_true(v[place]), found[0] < extent(size))), T.Then():
            step = extent(count)
            for dim, n in enumerate(shape):
                step = tirx.floordiv(step, extent(n))
                store(out, [found[0], dim], tirx.floormod(tirx.floordiv(place, step), extent(n)))
            store(found, [0], found[0] + 1)

    results = [([size, len(shape)], "int64"), ([1], "int64")]
    return loops("nonzero_static", results, body, reshaped(x, [count]))[0]
