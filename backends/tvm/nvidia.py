"""Turn PrimFuncs of blocks and threads into a library: machine code for a GPU, and what launches it for the host.

TVM writes CUDA C, NVRTC compiles it. The source needs no header: 16-bit floats are their bits, and what TVM includes
for them would take NVRTC longer to read than all the kernels.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from bridge.backends.tvm.schedule.threads import ROLLED

PRELUDE = """
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ULL)
#define CUDART_NAN __longlong_as_double(0xfff8000000000000ULL)
static __device__ __forceinline__ float bridge_from_bfloat16(ushort x) { return __uint_as_float((uint)x << 16); }
static __device__ __forceinline__ float bridge_rounded_to_bfloat16(float x) {
  uint bits;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
#else
  bits = __float_as_uint(x);
  bits = x != x ? 0x7fff0000 : (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
#endif
  return __uint_as_float(bits);
}
static __device__ __forceinline__ ushort bridge_to_bfloat16(float x) {
  return __float_as_uint(bridge_rounded_to_bfloat16(x)) >> 16;
}
static __device__ __forceinline__ ushort bridge_beside_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  ushort y;
  asm("{ .reg .b16 t; cvt.rn.bf16.f32 t, %1; mov.b16 %0, t; }" : "=h"(y) : "f"(x));
  return y;
#else
  return bridge_to_bfloat16(x);
#endif
}
static __device__ __forceinline__ float bridge_from_float16(ushort x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
static __device__ __forceinline__ ushort bridge_to_float16(float x) {
  ushort y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
static __device__ __forceinline__ float bridge_rounded_to_float16(float x) {
  return bridge_from_float16(bridge_to_float16(x));
}
static __device__ __forceinline__ float bridge_exp2(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ __forceinline__ float bridge_exp2_or_0(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ __forceinline__ float bridge_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ __forceinline__ float bridge_divided(float x, float y) {
  float z;
  asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
static __device__ __forceinline__ float bridge_larger(float x, float y) {
#if __CUDA_ARCH__ >= 800
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
#else
  return y > x || y != y ? y : x;
#endif
}
static __device__ __forceinline__ float bridge_smaller(float x, float y) {
#if __CUDA_ARCH__ >= 800
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
#else
  return y < x || y != y ? y : x;
#endif
}
static __device__ __forceinline__ float bridge_within(float x, float most) {
  return bridge_larger(bridge_smaller(x, most), -most);
}
"""
"""What each source begins with, in place of TVM's headers.

To round to bfloat16 takes one fast instruction, made for two numbers: beside a zero it gives a float32. The one made
for one number is as slow as a function, but where two lie side by side the compiler takes the fast one for both.
"""

_ROLLED = re.compile(rf"^( *)for(?= \(\w+ {ROLLED}\d)", re.MULTILINE)

TOGETHER = 6
"""Kernels of a source. Sources are compiled side by side."""

PASSES = (
    tirx.transform.VerifyMemory,
    tirx.transform.AnnotateEntryFunc,
    tirx.transform.SplitHostDevice,
    tirx.transform.MakePackedAPI,
    tirx.transform.LowerTVMBuiltin,
    tirx.transform.LowerIntrin,
    tirx.transform.SkipAssert,
)


class NotCompiled(Exception):
    """NVRTC refused a source; its own words."""


def compiled_for_gpu(functions: dict[str, Any], target: Any) -> Any:
    """Threads as a module of machine code, each function under its name, with its host's part."""
    host = tvm.target.Target("llvm")
    module = tvm.IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()})
    module = tirx.transform.BindTarget(target.with_host(host))(module)
    module = tvm.transform.Sequential([make() for make in PASSES])(module)
    kernels = {name: f for name, f in module.functions.items() if _is_kernel(f)}
    launchers = {name: f for name, f in module.functions.items() if name not in kernels}
    made = tvm.get_global_func("target.build.llvm")(tvm.IRModule(launchers), host)
    for part in _built(list(kernels.items()), target):
        made.import_module(part)
    return made


def _is_kernel(function: Any) -> bool:
    return int(function.attrs.get("calling_conv", 0)) == 2


def _built(kernels: Sequence[tuple[Any, Any]], target: Any) -> list[Any]:
    """The kernels in modules of a few each."""
    parts = [dict(kernels[n : n + TOGETHER]) for n in range(0, len(kernels), TOGETHER)]
    arch = str(target.attrs["arch"])
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", lambda source: machine_code(source, arch), override=True)
    build: Callable[..., Any] = tvm.get_global_func("target.build.cuda")
    with ThreadPoolExecutor(max(1, min(len(parts), os.cpu_count() or 1))) as pool:
        return list(pool.map(lambda part: build(tvm.IRModule(part), target), parts))


def source_of(kernels: str) -> str:
    """A source without TVM's headers: the kernels, after what they call.

    A loop that is to stay one says so: unrolled, walks over a long row would keep all of it, in memory of the thread.
    """
    return PRELUDE + _ROLLED.sub(r"\1#pragma unroll 1\n\1for", kernels[kernels.index('extern "C" __global__') :])


def machine_code(kernels: str, arch: str) -> bytes:
    """What a GPU of the architecture runs. Raises NotCompiled."""
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")

    _, program = nvrtc.nvrtcCreateProgram(source_of(kernels).encode(), b"kernels.cu", 0, None, None)
    options = [f"--gpu-architecture={arch}".encode(), b"-default-device", b"--std=c++17"]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise NotCompiled(log.decode(errors="replace").strip("\0 \n"))
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    code = b" " * size
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return code
