"""The one door to TVM's moving names, and the few words in which conversions are written.

Three kinds of value meet here: a *Relax expression* is a tensor of the program, a *TE tensor* is the same tensor
inside the body of one kernel, and a *TIR expression* is one element or one size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from bridge.errors import BridgeError


class TvmUnavailable(BridgeError, ImportError):
    """TVM is absent, or a name that the bridge needs has moved."""


try:
    import tvm_ffi
    from tvm import ir, relax, s_tir, sym, te, tirx
    from tvm.relax import op as R
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T
except ImportError as error:
    try:
        found = f"apache-tvm {version('apache-tvm')} is installed"
    except PackageNotFoundError:
        found = "apache-tvm is not installed"
    raise TvmUnavailable(f"{error} ({found}); install 'apache-tvm>=0.27,<0.28' with 'apache-tvm-ffi<0.1.15'") from error

Expr = Any
"""A Relax or a TIR expression. TVM's own annotations contradict its values: to them `a < b` is a bool."""

Size = int | Expr
"""A size: a Python int, or a TIR expression over the symbolic sizes of the graph."""

DTYPES: dict[torch.dtype, str] = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int64: "int64", torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8",
    torch.bool: "bool",
}  # fmt: skip
"""The types that a kernel can hold."""

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """TVM's name of a torch type. Raises KeyError for one that no kernel holds."""
    return DTYPES[dtype]


def torch_dtype(name: str) -> torch.dtype:
    """The torch type of TVM's name."""
    return TORCH_DTYPES[name]


# Tensors of the program -----------------------------------------------------------------------------------------------


def bound(x: Expr) -> Expr:
    """The expression with a known type: itself, or the variable it is bound to in the block being built."""
    if isinstance(x, (relax.Var, ir.GenericConst)) and isinstance(x.ty, relax.TensorType):
        return x
    return builder().emit(x)


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


def const(value: float | bool, like: Expr | str) -> Expr:
    """A 0-d tensor constant of the type of another tensor, or of a named type. Integers wrap as in torch."""
    name = like if isinstance(like, str) else dtype_of(like)
    return relax.const(torch.tensor(value).to(torch_dtype(name)).item(), name)


def cast(x: Expr, name: str) -> Expr:
    """A tensor in another type, converted as torch does."""
    given = dtype_of(x)
    if given == name:
        return x
    return pointwise("cast", lambda v: converted(v, name), x) if needs_care(given, name) else R.astype(x, name)


def needs_care(given: str, wanted: str) -> bool:
    """TVM's own conversion differs from torch's, or is undefined, for some values."""
    return wanted == "bool" or (given.startswith(("float", "bfloat")) and wanted in ("uint8", "int8", "int16"))


# Elements and sizes ---------------------------------------------------------------------------------------------------


def number(value: float | bool, like: Expr | str) -> Expr:
    """A TIR constant of the type of another TIR expression, or of a named type."""
    name = like if isinstance(like, str) else str(like.ty.dtype)
    return tirx.const(torch.tensor(value).to(torch_dtype(name)).item(), name)


def converted(v: Expr, name: str) -> Expr:
    """One element in another type: anything but zero is True, and floats reach small integers by way of int64."""
    given = str(v.ty.dtype)
    if given == name:
        return v
    if name == "bool":
        return v != number(0, given)
    if needs_care(given, name):
        v = v.astype("int64")
    return v.astype(name)


def scalar(value: float | bool | Expr, name: str) -> Expr:
    """A Python number or a symbolic scalar as a 0-d tensor of a named type."""
    if isinstance(value, ir.Expr):
        return kernel("scalar", lambda: te.compute((), lambda: converted(value, name), name="scalar"))
    return const(value, name)


def proved_different(a: Size, b: Size) -> bool:
    """Two sizes that cannot be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    unequal: Any = a != b
    return sym.Analyzer().can_prove(unequal)


def extent(n: Size) -> Expr:
    """A size as the 64-bit TIR expression that kernels count in."""
    return tirx.IntImm("int64", n) if isinstance(n, int) else n


def broadcast_shape(*shapes: Sequence[Size]) -> list[Size]:
    """The shape that tensors of these shapes are broadcast to. A symbolic size is never taken for 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [next((n for n in sizes if not (isinstance(n, int) and n == 1)), 1) for sizes in zip(*padded, strict=True)]


# Kernels --------------------------------------------------------------------------------------------------------------


def kernel(name: str, body: Callable[..., Any], *tensors: Expr) -> Any:
    """Emit one kernel: `body` takes TE tensors and returns a TE tensor, or a list of them for several results.

    Symbolic sizes that no tensor's shape gives become arguments of the kernel. Returns the bound result, or a list.
    """
    tensors = tuple(bound(x) for x in tensors)
    inputs = [te.placeholder([extent(n) for n in shape_of(x)], dtype_of(x), f"x{i}") for i, x in enumerate(tensors)]
    made = body(*inputs)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    function: Any = te.create_prim_func([*inputs, *outputs], "int64")
    sizes = free_sizes(function)
    if sizes:
        function = te.create_prim_func([*inputs, *sizes, *outputs], "int64")
    callee = builder().add_func(s_tir.renew_defs(function).without_attr("global_symbol"), name)
    types = [relax.TensorType(list(out.shape), str(out.dtype)) for out in outputs]
    result = builder().emit(
        relax.call_tir(callee, relax.Tuple([*tensors, *sizes]), types if len(types) > 1 else types[0])
    )
    if not isinstance(made, (list, tuple)):
        return result
    return [result] if len(types) == 1 else [builder().emit(relax.TupleGetItem(result, i)) for i in range(len(types))]


def free_sizes(function: Any) -> list[Expr]:
    """The symbols that a kernel uses, and that are not a whole dimension of one of its buffers."""
    iterators: set[Expr] = set()
    tvm_ffi.structural_walk(function.body, (tirx.IterVar, lambda it: iterators.add(it.var)), order="post")
    used = tirx.analysis.undefined_vars(function.body, list(function.params))
    dimensions = [n for buffer in function.params for n in buffer.shape]
    used += [v for n in dimensions for v in tirx.analysis.undefined_vars(n)]
    given = {n for n in dimensions if isinstance(n, tirx.Var)}
    return [v for v in dict.fromkeys(used) if ir.is_prim_var(v) and v not in given and v not in iterators]


def compute(name: str, shape: Sequence[Size], element: Callable[..., Expr], *tensors: Expr) -> Expr:
    """Emit a kernel that computes each element by itself: `element(index, *te_tensors)`, index a tuple of positions."""

    def body(*inputs: Any) -> Any:
        return te.compute([extent(n) for n in shape], lambda *index: element(index, *inputs), name=name)

    return kernel(name, body, *tensors)


REDUCERS: dict[str, Any] = {"sum": te.sum, "max": te.max, "min": te.min}


def reduction(
    name: str, how: str, shape: Sequence[Size], over: Sequence[Size], element: Callable[..., Expr], *tensors: Expr
) -> Expr:
    """Emit a kernel that reduces `element(index, position, *te_tensors)` over the positions in `over`.

    how: "sum", "max" or "min". The two last propagate NaN in the bridge's own kernels.
    """

    def body(*inputs: Any) -> Any:
        axes = [te.reduce_axis((0, extent(n)), f"r{i}") for i, n in enumerate(over)]
        positions = tuple(axis.var for axis in axes)
        return te.compute(
            [extent(n) for n in shape],
            lambda *index: REDUCERS[how](element(index, positions, *inputs), axis=axes),
            name=name,
        )

    return kernel(name, body, *tensors)


def pointwise(name: str, element: Callable[..., Expr], *operands: Expr) -> Expr:
    """Emit a kernel over tensors that are broadcast together: `element` takes one element of each.

    0-d constants become part of the kernel.
    """
    tensors = [x for x in operands if constant_value(x) is None]
    shapes = [shape_of(x) for x in operands]

    def at(index: tuple[Expr, ...], *inputs: Any) -> Expr:
        given = iter(inputs)
        return element(*(
            next(given)(*broadcast_index(index, own)) if (value := constant_value(x)) is None
            else exactly(value, dtype_of(x))
            for x, own in zip(operands, shapes, strict=True)
        ))  # fmt: skip

    return compute(name, broadcast_shape(*shapes), at, *tensors)


def constant_value(x: Expr) -> float | int | None:
    """The value of a 0-d constant, None for every other tensor."""
    if isinstance(x, ir.GenericConst) and x.ty.ndim == 0:
        return x.value.numpy().item()
    return None


def exactly(value: float, name: str) -> Expr:
    """A constant in an element-wise kernel. Zero is hidden from TVM's folding, to which x * 0 is 0 for a NaN too."""
    if value == 0 and name in ("float32", "float64"):
        bits = {"float64": "int64", "float32": "int32"}[name]
        low = -(2**63) if name == "float64" else -(2**31)
        return tirx.reinterpret(name, tirx.const(low if math.copysign(1, value) < 0 else 0, bits))
    return number(value, name)


def broadcast_index(index: Sequence[Expr], shape: Sequence[Size]) -> list[Any]:
    """Where a tensor of this shape is read for an element of the shape it is broadcast to."""
    kept = index[len(index) - len(shape) :]
    return [0 if isinstance(n, int) and n == 1 else i for i, n in zip(kept, shape, strict=True)]


def loops(name: str, results: Sequence[tuple[Sequence[Size], str]], body: Callable[..., None], *tensors: Expr) -> Any:
    """Emit a kernel written as loops, for what is no expression over single elements: scatter, sort, scan.

    results: shape and type of each result. `body(*outputs, *inputs)` writes loops with `T` over buffers that are
    indexed by element; it has to write every element of each result. Returns a list of the bound results.
    """

    def write(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        with IRBuilder() as statements:
            with T.seq_scope():
                body(*outputs, *inputs)
            return statements.get()

    def extern(*inputs: Any) -> list[Any]:
        shapes = [[extent(n) for n in shape] for shape, _ in results]
        made = te.extern(shapes, list(inputs), write, dtype=[dtype for _, dtype in results], name=name)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    return kernel(name, extern, *tensors)
