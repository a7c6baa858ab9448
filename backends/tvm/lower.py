"""Write a graph as one Relax program: rows where TVM generates, call-outs where something else runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from bridge.backends.tvm.bounds import Bound, Check, Source, checks
from bridge.backends.tvm.compat import DTYPES, Expr, R, dtype_name, extent, number, relax, shape_of, tirx
from bridge.backends.tvm.convert import convert
from bridge.backends.tvm.kernels import cast, pointwise, reduced, scalar
from bridge.backends.tvm.lowered import Lowered, constants_of, tensor_outputs
from bridge.backends.tvm.symbols import Symbols
from bridge.ir.callout import callout_inputs
from bridge.ir.compiled import Way
from bridge.ir.joint import Graph
from bridge.ir.nodes import computes
from bridge.ir.shapes import is_size
from bridge.ir.sizes import text_of
from bridge.ir.views import base_of, is_view

CHECK = "bridge.check."
"""Prefix of the name by which the program looks at what a check found; the variable's name follows."""

CALLOUT = "bridge.callout."
"""Prefix of the name by which the Relax program calls out; the node's name follows, so that no two calls are merged."""


class NodeFailed(Exception):
    """A row, or TVM on what the row made, failed for a node."""

    def __init__(self, node: fx.Node, reason: str) -> None:
        super().__init__(f"{node.name}: {reason}")
        self.node, self.reason = node, reason


def lower(graph: Graph, ways: Mapping[str, Way]) -> Lowered:
    """The graph as one IRModule with one function `main`. Raises NodeFailed."""
    return _Lowering(graph, ways).run()


class _Lowering:
    def __init__(self, graph: Graph, ways: Mapping[str, Way]) -> None:
        self._graph = graph
        self._ways = dict(ways)
        self._symbols = Symbols()
        self._builder = relax.BlockBuilder()
        self._expr: dict[fx.Node, Any] = {}
        self._names: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._views: dict[str, str] = {}
        self._strides: dict[str, tuple[str, ...]] = {}
        self._looked_at = checks(graph)
        self._checks: dict[str, tuple[str, Check]] = {}

    def run(self) -> Lowered:
        nodes = self._graph.nodes
        constants = constants_of(self._graph)
        parameters = [self._parameter(n) for n in nodes if n.op == "placeholder" or n.name in constants]
        with self._builder.function("main", parameters):
            with self._builder.dataflow():
                for node in nodes:
                    if node.op == "call_function":
                        self._node(node)
                results = [self._expr[n] for n in tensor_outputs(self._graph)]
                result = self._builder.emit_output(relax.Tuple(results))
            self._builder.emit_func_output(result)
        module = self._builder.get()
        into = {node.name: target.name for node, target in self._written()}
        known = self._strides, self._ways, constants, into, self._checks
        return Lowered(self._graph, *known, module, self._names, self._owners, self._views)

    def _written(self) -> list[tuple[fx.Node, fx.Node]]:
        """Results that lie as the inputs do into which they are to be written, each input once."""
        found: dict[fx.Node, fx.Node] = {}
        for value, target in self._graph.written:
            fresh = isinstance(value, fx.Node) and value.op == "call_function" and not is_view(value)
            if fresh and value not in found.values() and value not in found and _alike(value, target):
                found[value] = target
        return list(found.items())

    def _parameter(self, node: fx.Node) -> Any:
        value = node.meta["val"]
        if is_size(node):
            return relax.Var(node.name, relax.ShapeType(self._symbols.all_of(value)))
        variable = relax.Var(node.name, self._type(value))
        self._bind(node, variable)
        return variable

    def _type(self, value: Any) -> Any:
        """A tensor's type; tensors that TVM has no type for are objects, which only call-outs touch."""
        if isinstance(value, torch.Tensor) and value.dtype in DTYPES and value.layout == torch.strided:
            return relax.TensorType([self._symbols.size(n) for n in value.shape], dtype_name(value.dtype))
        return relax.ObjectType()

    def _bind(self, node: fx.Node, expr: Any) -> None:
        self._expr[node] = expr
        if isinstance(expr, tuple):
            return
        self._names.setdefault(expr.name, node.name)
        self._owners.setdefault(expr.name, _maker(node).name)
        value: Any = node.meta.get("val")  # what only asserts has none
        if isinstance(expr.ty, relax.TensorType):
            given = self._ways.get(node.name) is not Way.GENERATED
            self._strides[node.name] = tuple(text_of(s) for s in value.stride()) if given or _packed(value) else ()
        if node.op == "call_function" and is_view(node):
            self._views[node.name] = base_of(node).name

    def _node(self, node: fx.Node) -> None:
        if is_size(node) and self._ways.get(node.name) is None:
            return
        if node.target is operator.getitem:
            self._pick(node)
        elif self._ways.get(node.name, Way.GENERATED) is Way.GENERATED and computes(node):
            for check in self._looked_at.get(node, ()):
                self._check(check)
            self._bind(node, self._converted(node))
        else:
            self._call_out(node)

    def _pick(self, node: fx.Node) -> None:
        source, position = node.args
        held = self._expr[source]  # type: ignore[index]
        if isinstance(held, tuple):
            self._bind(node, held[position])  # type: ignore[index]
            return
        given = source.meta["val"]  # type: ignore[union-attr]
        before = sum(1 for v in given[:position] if v is not None)  # type: ignore[misc]
        self._bind(node, self._builder.emit(relax.TupleGetItem(held, before), node.name))

    def _converted(self, node: fx.Node) -> Any:
        """What the row makes. A fresh result that the row gives as its own argument is copied: it has to be fresh."""
        try:
            made = convert(node, self._expr.__getitem__, self._symbols.size)
            if not isinstance(made, tuple) and not is_view(node) and made.name in self._names:
                made = pointwise("copy", lambda v: v, made)
        except Exception as error:  # a row's fault, or TVM's: the node goes elsewhere and the ledger says so
            raise NodeFailed(node, f"{type(error).__name__}: {error}") from error
        return made

    def _check(self, check: Check) -> None:
        """A kernel that looks at an index or a divisor, and a step that raises by what it found."""
        found = self._looked(check)
        self._owners[found.name] = check.node.name
        name = f"check_{found.name}"
        call = R.call_pure_packed(relax.ExternFunc(CHECK + name), found, ty_args=[relax.ObjectType()])
        self._names[self._builder.emit(call, name).name] = name
        self._checks[name] = found.name, check

    def _looked(self, check: Check) -> Any:
        if isinstance(check, Bound):
            low, high = self._symbols.size(check.low), self._symbols.size(check.high)
            return outside(self._expr[check.index], low, high, check.besides)
        if isinstance(check, Source):
            shape = [self._symbols.size(n) for n in check.shape]
            return more_often(R.broadcast_to(self._expr[check.index], shape), self._symbols.size(check.count))
        name, size = dtype_name(check.dtype), is_size(check.index)
        divisor = scalar(self._symbols.size(check.index.meta["val"]), name) if size else self._expr[check.index]
        return any_of("zero", lambda value: value == number(0, value), cast(divisor, name))

    def _call_out(self, node: fx.Node) -> None:
        arguments = [self._argument(n) for n in callout_inputs(node)]
        value, name = node.meta.get("val"), CALLOUT + node.name
        if isinstance(value, torch.Tensor) and isinstance(self._type(value), relax.TensorType):
            call = R.call_dps_packed(name, relax.Tuple(arguments), out_ty=self._type(value))
        else:
            several = isinstance(value, tuple | list)
            results = [v for v in value if v is not None] if several else []
            ty = relax.TupleType([self._type(v) for v in results]) if several else relax.ObjectType()
            call = R.call_pure_packed(relax.ExternFunc(name), *arguments, ty_args=[ty])
        expr = self._builder.emit(call, node.name)
        self._names[expr.name] = node.name
        if not is_size(node):
            self._bind(node, expr)

    def _argument(self, node: fx.Node) -> Any:
        if is_size(node):
            return relax.ShapeExpr(self._symbols.all_of(node.meta["val"]))
        held = self._expr[node]
        return relax.Tuple(list(held)) if isinstance(held, tuple) else held


def outside(index: Expr, low: Any, high: Any, besides: int | None) -> Expr:
    """1 where any of the indices is out of bounds, else 0; an int32 without dimensions."""

    def wrong(position: Expr) -> Expr:
        position = position.astype("int64")
        out = tirx.Or(position < extent(low), position >= extent(high))
        return out if besides is None else tirx.And(out, position != extent(besides))

    return any_of("outside", wrong, index)


def more_often(mask: Expr, count: Any) -> Expr:
    """1 where a mask holds more often than `count`, else 0; an int32 without dimensions."""
    held = reduced("held", "sum", lambda value: value.astype("int64"), mask, range(len(shape_of(mask))), False)
    return any_of("more_often", lambda value: value > extent(count), held)


def any_of(name: str, wrong: Callable[[Expr], Expr], values: Expr) -> Expr:
    """1 where a condition holds of any of the elements, else 0; an int32 without dimensions."""

    def element(value: Expr) -> Expr:
        return tirx.Select(wrong(value), number(1, "int32"), number(0, "int32"))

    return reduced(name, "max", element, values, range(len(shape_of(values))), False)


def _alike(value: fx.Node, target: fx.Node) -> bool:
    """Whether a result has the type, the sizes and the strides of an input, all of them numbers."""
    one, other = value.meta["val"], target.meta["val"]
    sizes = (*one.shape, *one.stride())
    known = all(isinstance(n, int) for n in sizes)
    return known and one.dtype == other.dtype and sizes == (*other.shape, *other.stride()) and _packed(other)


def _maker(node: fx.Node) -> fx.Node:
    """The computing node behind a pick."""
    source = node.args[0] if node.target is operator.getitem else None
    return _maker(source) if isinstance(source, fx.Node) else node


def _packed(value: torch.Tensor) -> bool:
    """Whether the strides are worth keeping: without overlap and gaps, or symbolic and so not known."""
    if any(not isinstance(n, int) for n in (*value.shape, *value.stride())):
        return True
    step = 1
    for stride, size in sorted((st, si) for st, si in zip(value.stride(), value.shape, strict=True) if si != 1):
        if stride != step:
            return value.numel() == 0
        step *= size
    return True
