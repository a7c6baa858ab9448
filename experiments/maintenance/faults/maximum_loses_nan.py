"""Relax's maximum drops a NaN that stands in front.

Seen: maximum(nan, 1) is 1. Right: nan, whichever operand it is.
"""

import numpy as np
import tvm
from tvm import relax


def run(op, *arrays):
    """One Relax op of tensors, by TVM's own pipeline on the CPU."""
    block = relax.BlockBuilder()
    inputs = [relax.Var(f"x{n}", relax.TensorType(a.shape, str(a.dtype))) for n, a in enumerate(arrays)]
    with block.function("main", inputs):
        block.emit_func_output(block.emit(op(*inputs)))
    machine = relax.VirtualMachine(relax.build(block.get(), target="llvm"), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


a, b = np.array([np.nan, 1.0], "float32"), np.array([1.0, np.nan], "float32")
found = run(relax.op.maximum, a, b)
assert np.isnan(found).all(), f"maximum(nan, 1), maximum(1, nan) are {found}"
