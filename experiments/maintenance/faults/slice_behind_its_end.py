"""Relax's strided_slice raises where a slice begins behind its end.

Seen: an error when the type is inferred. Right: an empty tensor, as x[3:1] is in torch and numpy.
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


found = run(lambda x: relax.op.strided_slice(x, axes=[0], begin=[3], end=[1]), np.zeros(4, "float32"))
assert found.shape == (0,), f"x[3:1] has the shape {found.shape}"
