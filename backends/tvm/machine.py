"""Run a Relax module on TVM's virtual machine: the second reference, beside the fx interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm
import tvm_ffi

from bridge.backends.tvm.compat import dtype_name, relax


def machine(module: tvm.IRModule, target: str = "llvm") -> Callable[[Sequence[Any]], list[Any]]:
    """Build the module with TVM's default pipeline.

    The callable takes the arguments of `main`, tensors of torch and ints for symbolic sizes, and returns the results in
    a list. Tensors have to be compact and to begin on 64 bytes: others are copied. Memory is TVM's, not torch's.
    """
    running = relax.VirtualMachine(relax.build(module, target), tvm.cpu())

    def run(arguments: Sequence[Any]) -> list[Any]:
        given = [tvm_ffi.Shape((a,)) if isinstance(a, int) else aligned(a) for a in arguments]
        made = running["main"](*given)
        results = list(made) if isinstance(made, tvm_ffi.Array) else [made]
        return [torch.from_dlpack(result) for result in results]

    return run


def aligned(tensor: Any) -> Any:
    """The tensor, or a copy of it where its memory is not what TVM's kernels assume."""
    tensor = tensor.detach()
    if not tensor.numel():
        return tvm.runtime.empty(tuple(tensor.shape), dtype_name(tensor.dtype))
    if tensor.is_contiguous() and tensor.data_ptr() % 64 == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
