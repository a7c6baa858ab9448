"""Relax's relu makes 0 of a NaN.

Seen: relu(nan) is 0. Right: nan, as in torch, numpy and IEEE 754.
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


found = run(relax.op.nn.relu, np.array([np.nan, 1.0, -1.0], "float32"))
assert np.isnan(found[0]), f"relu(nan) is {found[0]}"
