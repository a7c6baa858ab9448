"""Relax cannot fill a tensor with infinity.

Seen: the build fails. Right: a tensor of infinities, as torch.full gives for every attention mask.
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


found = run(lambda x: relax.op.full((3,), relax.const(float("-inf"), "float32")), np.zeros(3, "float32"))
assert np.isneginf(found).all(), f"full((3,), -inf) is {found}"
