"""Relax sums 16-bit floats in 16 bits.

Seen: the sum of 4096 ones is 2048, from where on one more changes nothing. Right: 4096, by adding up in float32.
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


found = run(lambda x: relax.op.sum(x, axis=[0]), np.ones(4096, "float16"))
assert found == 4096, f"the sum of 4096 ones is {found}"
