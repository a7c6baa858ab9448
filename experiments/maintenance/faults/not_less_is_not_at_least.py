"""TVM rewrites `not a < b` as `a >= b`, which is not so for a NaN.

Seen: not (nan < 1) is False. Right: True, since nan < 1 is False.
"""

import numpy as np
import tvm
from tvm import te, tirx


def run(element, *arrays):
    """An element-wise kernel of what `element` makes of the elements."""
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    output = te.compute(arrays[0].shape, lambda i: element(*(x[i] for x in inputs)), name="y")
    kernel = tvm.compile(te.create_prim_func([*inputs, output]), target="llvm")
    out = tvm.runtime.empty(arrays[0].shape, str(output.dtype))
    kernel(*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


found = run(lambda a: tirx.Not(a < tirx.const(1.0, "float32")).astype("int8"), np.array([np.nan], "float32"))
assert found[0] == 1, f"not (nan < 1) is {bool(found[0])}"
