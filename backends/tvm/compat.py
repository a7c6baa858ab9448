"""The one door to TVM's moving names, and what is asked of its tensors, elements and sizes."""

from __future__ import annotations

import importlib
import math
import sys
import types
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from bridge.backends.tvm.memory import DTYPES, dtype_name, torch_dtype
from bridge.errors import BridgeError


class TvmUnavailable(BridgeError, ImportError):
    """TVM is absent, or a name that the bridge needs has moved."""


try:
    import tvm
    from tvm import s_tir, te
    from tvm.s_tir import SBlock, SBlockRealize, renew_defs
    from tvm.s_tir.analysis import get_sblock_read_write_region
    from tvm.script import ir_builder
except ImportError as error:
    try:
        found = f"apache-tvm {version('apache-tvm')} is installed"
    except PackageNotFoundError:
        found = "apache-tvm is not installed"
    raise TvmUnavailable(f"{error} ({found}); install 'apache-tvm>=0.27,<0.28' with 'apache-tvm-ffi<0.1.15'") from error

__all__ = [
    "DTYPES",
    "IN_LANES",
    "Block",
    "BlockRealize",
    "IRBuilder",
    "R",
    "T",
    "dtype_name",
    "ir",
    "meta_schedule",
    "relax",
    "renew_defs",
    "te",
    "tirx",
    "torch_dtype",
    "with_regions",
]

ir: Any = tvm.ir
relax: Any = tvm.relax
tirx: Any = tvm.tirx
"""TVM's annotations contradict its values: to them `a < b` is a bool, and a list is no expression. So they are off."""

Block: Any = SBlock
BlockRealize: Any = SBlockRealize
"""One store over axes of which nobody said the order, and where it stands in loops."""

IN_LANES: Sequence[Any] = (
    tirx.transform.StmtSimplify,
    tirx.transform.FlattenBuffer,
    s_tir.transform.LoopPartition,
    tirx.transform.VectorizeLoop,
    tirx.transform.UnrollLoop,
    tirx.transform.RemoveNoOp,
)
"""From plain loops to such that say in which lanes they run."""


def meta_schedule() -> Any:
    """TVM's search for schedules, without its tensor intrinsics: they take 20 s to import, and no kernel has any."""
    intrinsics = "tvm.s_tir.tensor_intrin"
    sys.modules.setdefault(intrinsics, types.ModuleType(intrinsics))
    return importlib.import_module("tvm.s_tir.meta_schedule")


R: Any = relax.op
"""Relax's ops."""

IRBuilder: Any = ir_builder.IRBuilder
T: Any = ir_builder.tirx
"""TVMScript's builder: loops and stores, for kernels that are no expression."""


def with_regions(block: Any, buffers: Sequence[Any]) -> Any:
    """The block, told what it reads and writes of these buffers."""
    reads, writes = get_sblock_read_write_region(block, {buffer: buffer for buffer in buffers})
    return SBlock(block.iter_vars, reads, writes, block.name_hint, block.body, block.init)


Expr = Any
"""A Relax or a TIR expression."""

Size = int | Expr
"""A size: a Python int, or a TIR expression over the symbolic sizes of the graph."""


def bound(x: Expr) -> Expr:
    """The expression with a known type: itself, or the variable it is bound to in the block being built."""
    if isinstance(x, (relax.Var, ir.GenericConst)) and isinstance(x.ty, relax.TensorType):
        return x
    made = builder().emit(x)
    known = builder().lookup_binding(made)  # a variable, where this very expression was bound before
    return known if isinstance(known, relax.Var) else made


def builder() -> Any:
    """The BlockBuilder in whose block rows are called."""
    current = relax.BlockBuilder.current()
    assert current is not None, "conversions are called inside a block of a BlockBuilder"
    return current


def is_tensor(x: Any) -> bool:
    """A tensor of the program, as opposed to a number or a size."""
    return isinstance(x, ir.Expr) and not ir.is_prim_expr(x)


def shape_of(x: Expr) -> list[Size]:
    """The sizes of a tensor: Python ints where they are known, TIR expressions where they are symbols."""
    return [int(n) if isinstance(n, tirx.IntImm) else n for n in bound(x).ty.shape.values]


def dtype_of(x: Expr) -> str:
    """The type of a tensor's elements, or of a TIR expression, by TVM's name."""
    return str((bound(x) if is_tensor(x) else x).ty.dtype)


def reshaped(x: Expr, shape: Sequence[Size]) -> Expr:
    """The same elements in another shape. To Relax's own `reshape` a 0 means the size that was there."""
    if any(isinstance(n, int) and n == 0 for n in shape):
        return R.zeros(list(shape), dtype_of(x))
    return R.reshape(bound(x), list(shape))


def const(value: float | bool, like: Expr | str) -> Expr:
    """A 0-d tensor constant of the type of another tensor, or of a named type. Integers wrap as in torch."""
    name = like if isinstance(like, str) else dtype_of(like)
    return relax.const(rounded(value, name), name)


def needs_care(given: str, wanted: str) -> bool:
    """TVM's own conversion differs from torch's, or is undefined, for some values."""
    return wanted == "bool" or (given.startswith(("float", "bfloat")) and wanted in ("uint8", "int8", "int16"))


def rounded(value: float | bool, name: str) -> float | int | bool:
    """A Python number as a type holds it."""
    widest = torch.float64 if isinstance(value, float) else torch.int64
    return torch.tensor(value, dtype=widest).to(torch_dtype(name)).item()


def number(value: float | bool, like: Expr | str) -> Expr:
    """A TIR constant of the type of another TIR expression, or of a named type."""
    name = like if isinstance(like, str) else str(like.ty.dtype)
    return tirx.const(rounded(value, name), name)


def converted(v: Expr, name: str) -> Expr:
    """One element in another type: anything but zero is True, and floats reach small integers by way of int64."""
    given = str(v.ty.dtype)
    if given == name:
        return v
    if name == "bool":
        return is_true(v)
    if needs_care(given, name):
        v = v.astype("int64")
    return v.astype(name)


def is_true(v: Expr) -> Expr:
    """The element is not zero. TVM's `!=` of floats is false for NaN, and cannot be said of two bools."""
    if is_float(v):
        return tirx.Or(v != number(0, v), is_nan(v))
    return v if is_bool(v) else v != number(0, v)


def unequal(a: Expr, b: Expr) -> Expr:
    """Two elements differ; a NaN differs from everything."""
    if is_bool(a):
        a, b = a.astype("int8"), b.astype("int8")
    return tirx.Or(a != b, tirx.Or(is_nan(a), is_nan(b))) if is_float(a) else a != b


def wide(v: Expr) -> Expr:
    """A 16-bit float as float32, in which every one of its values is the same."""
    return v.astype("float32") if str(v.ty.dtype) in ("float16", "bfloat16") else v


def is_nan(v: Expr) -> Expr:
    """The element is NaN; no integer is."""
    return tirx.isnan(wide(v)) if is_float(v) else tirx.const(False, "bool")


def added(a: Expr, b: Expr) -> Expr:
    """The sum of two elements; of two bools whether any is True."""
    return tirx.Or(a, b) if is_bool(a) else a + b


def times(a: Expr, b: Expr) -> Expr:
    """The product of two elements; of two bools whether both are True."""
    return tirx.And(a, b) if is_bool(a) else a * b


def is_bool(v: Expr) -> bool:
    return str(v.ty.dtype) == "bool"


def larger(a: Expr, b: Expr) -> Expr:
    """The larger element, or NaN if either is one."""
    if is_bool(a):
        return tirx.Or(a, b)
    return tirx.Select(tirx.Or(a >= b, is_nan(a)), a, b)


def smaller(a: Expr, b: Expr) -> Expr:
    """The smaller element, or NaN if either is one."""
    if is_bool(a):
        return tirx.And(a, b)
    return tirx.Select(tirx.Or(a <= b, is_nan(a)), a, b)


def is_float(v: Expr | str) -> bool:
    """An element, or a type by TVM's name, is a float of any width."""
    return (v if isinstance(v, str) else str(v.ty.dtype)).startswith(("float", "bfloat"))


def power(a: Expr, b: Expr) -> Expr:
    """a to the b of two floats. TVM's own `pow` warns on standard error of exponents that are right."""
    return tirx.call_intrin(str(a.ty.dtype), "tirx.pow", a, b)


def c_function(name: str, *arguments: Expr) -> Expr:
    """A function of C's mathematical library, of float32 or float64 elements, where TVM has none of its own."""
    dtype = str(arguments[0].ty.dtype)
    return tirx.call_pure_extern(dtype, name + "f" if dtype == "float32" else name, *arguments)


def infinity(like: Expr) -> Expr:
    """Plus infinity in the type of an element."""
    return number(math.inf, like)


def proved_different(a: Size, b: Size) -> bool:
    """Two sizes that cannot be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    unequal: Any = a != b
    return tvm.sym.Analyzer().can_prove(unequal)


def extent(n: Size) -> Expr:
    """A size as the 64-bit TIR expression that kernels count in."""
    return tirx.IntImm("int64", n) if isinstance(n, int) else n


def broadcast_shape(*shapes: Sequence[Size]) -> list[Size]:
    """The shape that tensors of these shapes are broadcast to. A symbolic size is never taken for 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [next((n for n in sizes if not (isinstance(n, int) and n == 1)), 1) for sizes in zip(*padded, strict=True)]


def size_product(sizes: Sequence[Size]) -> Expr:
    """The number of elements of a shape, as a 64-bit TIR expression."""
    count: Expr = extent(1)
    for n in sizes:
        count = count * extent(n)
    return count


def constant_value(x: Any) -> float | int | None:
    """The value of a 0-d constant, None for every other tensor."""
    is_number = isinstance(x, ir.GenericConst) and not shape_of(x)
    return x.value.numpy().item() if is_number else None
