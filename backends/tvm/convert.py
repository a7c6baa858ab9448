"""One node of a graph in Relax, by its row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_aggregate

from bridge.backends.tvm.compat import (
    Expr,
    Size,
    bound,
    dtype_name,
    dtype_of,
    is_tensor,
    proved_different,
    shape_of,
    torch_dtype,
)
from bridge.backends.tvm.kernels import cast, pointwise, scalar
from bridge.backends.tvm.table import Accumulate, Conversion, table
from bridge.errors import BridgeError
from bridge.ir.promotion import computation_type, element_types
from bridge.ir.schema import call_arguments, numeric
from bridge.ir.shapes import SYMBOLIC, fake, is_size

SizeOf = Callable[[Any], Size]
"""From an int, a SymInt or a SymFloat to an int or a TIR expression."""


class RowMismatch(BridgeError, TypeError):
    """A row made a tensor of another size or type than torch's fake tensor says."""


def convert(node: fx.Node, value_of: Callable[[fx.Node], Any], size_of: SizeOf) -> Any:
    """A node as a Relax expression, or a tuple of them with None for a result that is not wanted.

    Called inside a dataflow block of the current BlockBuilder, which gets the bindings. `value_of` gives the Relax
    expression of a node's tensor (a tuple for several results), `size_of` the expression of a symbolic number.
    Raises RowMismatch when the result differs from the fake tensor, and whatever TVM raises on what the row made.
    """
    val = node.meta["val"]
    if is_size(node):
        return size_of(val)
    if node.target is operator.getitem:
        source, index = node.args
        return value_of(source)[index]  # type: ignore[arg-type]
    assert isinstance(node.target, OpOverload)
    row = table()[node.target]
    given = {name: value for name, value in call_arguments(node).items() if name in row.parameters}
    arguments = {name: resolved(value, value_of, size_of) for name, value in given.items()}
    arguments = in_computation_types(row, node, arguments)
    about = {
        "out": lambda: val,
        "sizes": lambda: sizes_of(val, size_of),
        "given": lambda: {name: fake(value) for name, value in call_arguments(node).items()},
    }
    named = {"x" if name == "self" else name: value for name, value in arguments.items()}
    made = row.fn(**named, **{name: about[name]() for name in row.about})
    if isinstance(made, tuple):
        made = tuple(fresh(result, named.values()) for result in made)
    return settled(row, made, val, size_of)


def fresh(made: Expr | None, arguments: Iterable[Any]) -> Expr | None:
    """One of several results; a copy where the row gives an argument as it is."""
    given = made is not None and any(made is a for a in arguments)
    return pointwise("copy", lambda v: v, made) if given else made


def resolved(value: Any, value_of: Callable[[fx.Node], Any], size_of: SizeOf) -> Any:
    """An argument with tensors as Relax expressions and symbolic numbers as size expressions; tuples become lists."""

    def leaf(item: Any) -> Any:
        if isinstance(item, fx.Node):
            return size_of(item.meta["val"]) if is_size(item) else value_of(item)
        return size_of(item) if isinstance(item, SYMBOLIC) else item

    return listed(map_aggregate(value, leaf))


def listed(value: Any) -> Any:
    return [listed(item) for item in value] if isinstance(value, (list, tuple)) else value


def in_computation_types(row: Conversion, node: fx.Node, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments cast as the row's rules say, numbers that stand for tensors made constants."""
    given = call_arguments(node)
    if row.promote is not None:
        among = [name for name in row.among if given[name] is not None]
        computation, _ = element_types([fake(given[name]) for name in among], row.promote)
        name = dtype_name(computation)
        return {n: tensor_in(v, name) if n in among else v for n, v in arguments.items()}
    if row.accumulate is not None:
        return {n: summed_in(v, row, node) if n in numeric(row.op) else v for n, v in arguments.items()}
    return arguments


def tensor_in(value: Any, name: str) -> Expr:
    return cast(value, name) if is_tensor(value) else scalar(value, name)


def summed_in(value: Any, row: Conversion, node: fx.Node) -> Any:
    """A tensor in the type that sums are kept in; what is no tensor as it is."""
    if not is_tensor(value):
        return value
    own = torch_dtype(dtype_of(value))
    result = node.meta["val"].dtype if row.accumulate is Accumulate.RESULT else own
    return cast(value, dtype_name(computation_type(result)))


def sizes_of(val: Any, size_of: SizeOf) -> Any:
    """The sizes of a result, or of each of several."""
    if isinstance(val, torch.Tensor):
        return [size_of(n) for n in val.shape]
    return [None if v is None else sizes_of(v, size_of) for v in val]


def settled(row: Conversion, made: Any, val: Any, size_of: SizeOf) -> Any:
    """What a row made, bound, in the type of the fake tensor, and compared with it."""
    if isinstance(val, (list, tuple)):
        return tuple(None if m is None else settled(row, m, v, size_of) for m, v in zip(made, val, strict=True))
    if row.promote is not None or row.accumulate is not None:
        made = cast(made, dtype_name(val.dtype))
    made = bound(made)
    sizes = sizes_of(val, size_of)
    if dtype_of(made) != dtype_name(val.dtype) or differs(shape_of(made), sizes):
        wanted = f"{dtype_name(val.dtype)}{sizes}"
        raise RowMismatch(f"{row.place} made {dtype_of(made)}{shape_of(made)} of {row.op}, torch has {wanted}")
    return made


def differs(made: list[Size], wanted: list[Size]) -> bool:
    return len(made) != len(wanted) or any(proved_different(a, b) for a, b in zip(made, wanted, strict=True))
