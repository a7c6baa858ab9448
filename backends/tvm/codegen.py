"""Turn PrimFuncs into a library.

Our kernels are loops already, so they need few of TVM's passes. The others are not only idle: one of them takes time
without end on long straight code, and TVM's simplifier refuses comparisons in lanes.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from bridge.backends.tvm.nvidia import compiled_for_gpu

PLAIN_LOOPS = (
    s_tir.transform.CanonicalizeLoop,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.CompactBufferAllocation,
    s_tir.transform.LowerMatchBuffer,
    s_tir.transform.LowerOpaqueBlock,
)
"""From blocks to loops, for functions that are run as they are."""

KERNELS = (
    tirx.transform.FlattenBuffer,
    tirx.transform.BF16ComputeLegalize,
    tirx.transform.VerifyMemory,
    tirx.transform.AnnotateEntryFunc,
    tirx.transform.SplitHostDevice,
    tirx.transform.MakePackedAPI,
    tirx.transform.BF16StorageLegalize,
    tirx.transform.LowerTVMBuiltin,
    tirx.transform.LowerIntrin,
    tirx.transform.SkipAssert,
)
"""From loops to what LLVM is given. Without TVM's checks of each argument, which are half of the machine code: the
program sees to it that memory lies as its kernels were told."""


def plain_loops(function: Any) -> Any:
    """A function of blocks as loops."""
    module = tvm.IRModule({"kernel": function.with_attr("global_symbol", "kernel")})
    return tvm.transform.Sequential([make() for make in PLAIN_LOOPS])(module)["kernel"]


def compiled(functions: dict[str, Any], target: Any) -> Any:
    """Loops as a module of machine code, each function under its name."""
    if target.kind.name == "cuda":
        return compiled_for_gpu(functions, target)
    host = target.with_host(target) if hasattr(target, "with_host") else target
    module = tvm.IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()})
    module = tirx.transform.BindTarget(host)(module)
    module = tvm.transform.Sequential([make() for make in KERNELS])(module)
    return tvm.get_global_func(f"target.build.{target.kind.name}")(module, target)
