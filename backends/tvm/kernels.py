"""The words in which conversions make kernels: what a block of the Relax program computes, said element by element.

Three kinds of value meet here: a *Relax expression* is a tensor of the program, a *TE tensor* is the same tensor
inside the body of one kernel, and a *TIR expression* is one element or one size.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi

from bridge.backends.tvm.compat import (
    Expr,
    IRBuilder,
    R,
    Size,
    T,
    bound,
    broadcast_shape,
    builder,
    const,
    constant_value,
    converted,
    dtype_of,
    extent,
    ir,
    needs_care,
    number,
    relax,
    renew_defs,
    shape_of,
    te,
    tirx,
)


def cast(x: Expr, name: str) -> Expr:
    """A tensor in another type, converted as torch does."""
    given = dtype_of(x)
    if given == name:
        return x
    return pointwise("cast", lambda v: converted(v, name), x) if needs_care(given, name) else R.astype(x, name)


def scalar(value: float | bool | Expr, name: str) -> Expr:
    """A Python number or a symbolic scalar as a 0-d tensor of a named type."""
    if isinstance(value, ir.Expr):
        return kernel("scalar", lambda: te.compute((), lambda: converted(value, name), name="scalar"))
    return const(value, name)


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
    callee = builder().add_func(renew_defs(function).without_attr("global_symbol"), name)
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


def _product(element: Expr, axis: Sequence[Any]) -> Expr:
    return te.comm_reducer(lambda a, b: a * b, lambda name: tirx.const(1, name), "prod")(element, axis=axis)


REDUCERS: dict[str, Any] = {"sum": te.sum, "max": te.max, "min": te.min, "prod": _product}


def reduction(
    name: str, how: str, shape: Sequence[Size], over: Sequence[Size], element: Callable[..., Expr], *tensors: Expr
) -> Expr:
    """Emit a kernel that reduces `element(index, position, *te_tensors)` over the positions in `over`.

    how: "sum", "prod", "max" or "min". The two last propagate NaN in the bridge's own kernels. Over no positions a sum
    is 0 and a product 1; an extreme of none is an error in torch.
    """
    is_empty = any(isinstance(n, int) and n == 0 for n in over)

    def body(*inputs: Any) -> Any:
        if is_empty:
            like = element([extent(0)] * len(shape), [extent(0)] * len(over), *inputs)
            return te.compute([extent(n) for n in shape], lambda *_: number(int(how == "prod"), like), name=name)
        axes = [te.reduce_axis((0, extent(n)), f"r{i}") for i, n in enumerate(over)]
        positions = tuple(axis.var for axis in axes)
        return te.compute(
            [extent(n) for n in shape],
            lambda *index: REDUCERS[how](element(index, positions, *inputs), axis=axes),
            name=name,
        )

    return kernel(name, body, *tensors)


def reduced(
    name: str, how: str, element: Callable[..., Expr], x: Expr | list[Expr], dims: Sequence[int], keepdim: bool
) -> Expr:
    """Emit a kernel that reduces dimensions of one tensor, or of several that are broadcast together.

    `element` makes of one element of each what is reduced; one with a parameter `index` gets the position too.
    """
    tensors = x if isinstance(x, list) else [x]
    shapes = [shape_of(t) for t in tensors]
    whole = broadcast_shape(*shapes)
    kept = [d for d in range(len(whole)) if d not in dims]
    shape = [1 if d in dims else n for d, n in enumerate(whole)] if keepdim else [whole[d] for d in kept]
    wants_index = "index" in inspect.signature(element).parameters

    def at(index: tuple[Expr, ...], positions: tuple[Expr, ...], *inputs: Any) -> Expr:
        place = dict(zip(dims, positions, strict=True))
        place.update((d, index[d if keepdim else i]) for i, d in enumerate(kept))
        full = [place[d] for d in range(len(whole))]
        values = [v(*broadcast_index(full, own)) for v, own in zip(inputs, shapes, strict=True)]
        return element(*values, index=full) if wants_index else element(*values)

    if not dims:
        return compute(name, shape, lambda index, *inputs: at(index, (), *inputs), *tensors)
    return reduction(name, how, shape, [whole[d] for d in dims], at, *tensors)


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


ELEMENTS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b, "equal": lambda a, b: a.equal(b), "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b, "greater_equal": lambda a, b: a >= b,
    "logical_and": tirx.And, "logical_or": tirx.Or, "bitwise_and": tirx.bitwise_and, "bitwise_or": tirx.bitwise_or,
    "bitwise_xor": tirx.bitwise_xor,
}  # fmt: skip
"""Relax's ops of two tensors, for one element."""


def binary(op: Callable[..., Expr], a: Expr, b: Expr) -> Expr:
    """Relax's own op of two tensors that are broadcast, or the same element by element.

    TVM gives up the shape of a result where it cannot tell that two symbolic sizes are equal, and folds x * 0 to 0.
    """
    known = all(isinstance(n, int) for x in (a, b) for n in shape_of(x))
    if known and not (0 in (constant_value(a), constant_value(b)) and dtype_of(a).startswith("float")):
        return op(a, b)
    return pointwise(op.__name__, ELEMENTS[op.__name__], a, b)


def exactly(value: float, name: str) -> Expr:
    """A constant in an element-wise kernel. Zero is hidden from TVM's folding, to which x * 0 is 0 for a NaN too."""
    if value != 0 or name not in ("float32", "float64"):
        return number(value, name)
    sign_bit = {"float32": ("int32", -(2**31)), "float64": ("int64", -(2**63))}[name]
    below_zero = tirx.reinterpret(name, tirx.const(sign_bit[1], sign_bit[0]))
    return below_zero if math.copysign(1, value) < 0 else tirx.abs(below_zero)


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


def nest(shape: Sequence[Size], body: Callable[[list[Expr]], None]) -> None:
    """Serial loops over every position of a shape, around what `body` writes for one; once for a 0-d shape."""
    if not shape:
        body([])
        return
    with T.grid(*(extent(n) for n in shape)) as variables:
        body(list(variables) if len(shape) > 1 else [variables])


def named(v: Expr) -> Expr:
    """The value of an integer at this point of a loop nest, kept under a name. TVM cannot name 16-bit floats."""
    return T.bind(v)


def store(buffer: Any, index: Sequence[Expr], value: Expr) -> None:
    """Write one element of a buffer in a loop nest."""
    T.buffer_store(buffer, value, list(index) or [0] * len(buffer.shape))
