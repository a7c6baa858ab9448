"""Positions of elements that are not zero, as many as are asked for."""

from __future__ import annotations

import torch

from bridge.backends.tvm.compat import T, extent, is_true, number, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import loops, nest, store
from bridge.backends.tvm.table import converts

aten = torch.ops.aten


@converts(aten.nonzero_static.default, symbolic=True)
def nonzero_static(x, size, fill_value):
    """In the order of the elements; the rows that are left over are filled."""
    rank, shape = len(shape_of(x)), shape_of(x) or [1]

    def body(out, found, v):
        nest([size, rank], lambda at: store(out, at, number(fill_value, "int64")))
        store(found, [0], number(0, "int64"))

        def look(at):
            with T.If(tirx.And(is_true(v[tuple(at)]), found[0] < extent(size))), T.Then():
                for dim, place in enumerate(at[:rank]):
                    store(out, [found[0], dim], place)
                store(found, [0], found[0] + 1)

        nest(shape, look)

    results = [([size, rank], "int64"), ([1], "int64")]
    return loops("nonzero_static", results, body, reshaped(x, shape))[0]
