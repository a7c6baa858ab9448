"""Numbers that change from step to step: as symbols for Python, as 0-d tensors of float64 in a graph."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import sympy
import torch
from torch import fx

from bridge.frontends.torch.adapters.symbols import Symbols

aten = torch.ops.aten


class UnknownNumber(Exception):
    """A number is computed in a way that a graph has no words for."""


class Algebra(Protocol):
    """What the parts of an expression are made into."""

    def number(self, value: float) -> Any: ...
    def symbol(self, symbol: Any) -> Any: ...
    def call(self, name: str, *arguments: Any) -> Any: ...


def folded(expr: Any, algebra: Algebra) -> Any:
    """A sympy expression in another algebra. Raises UnknownNumber."""
    if isinstance(expr, sympy.Number):
        return algebra.number(float(expr))
    if isinstance(expr, sympy.Symbol):
        return algebra.symbol(expr)
    kind = type(expr).__name__.removeprefix("OpaqueUnaryFn_")
    parts = [folded(part, algebra) for part in expr.args]
    if kind in ("ToFloat", "Identity"):
        return parts[0]
    name = NAMES.get(kind)
    if name is None:
        raise UnknownNumber(f"a number is computed by {kind}")
    return (
        functools.reduce(lambda a, b: algebra.call(name, a, b), parts)
        if len(parts) > 1
        else (algebra.call(name, parts[0]))
    )


NAMES: Mapping[str, str] = {
    "Add": "add", "Mul": "mul", "Pow": "pow", "FloatPow": "pow", "PowByNatural": "pow", "FloatTrueDiv": "div",
    "IntTrueDiv": "div", "Max": "maximum", "Min": "minimum", "sqrt": "sqrt", "exp": "exp", "log": "log",
}  # fmt: skip
"""By sympy's class, and torch's, the function of the algebra."""

IN_PYTHON: Mapping[str, Callable[..., float]] = {
    "add": operator.add, "mul": operator.mul, "pow": operator.pow, "div": operator.truediv, "maximum": max,
    "minimum": min, "sqrt": math.sqrt, "exp": math.exp, "log": math.log,
}  # fmt: skip

IN_ATEN: Mapping[str, Any] = {
    "add": aten.add.Tensor, "mul": aten.mul.Tensor, "pow": aten.pow.Tensor_Tensor, "div": aten.div.Tensor,
    "maximum": aten.maximum.default, "minimum": aten.minimum.default, "sqrt": aten.sqrt.default,
    "exp": aten.exp.default, "log": aten.log.default,
}  # fmt: skip


class Plain:
    """Python's numbers, given those of the symbols."""

    def __init__(self, values: Mapping[Any, float]) -> None:
        self._values = values

    def number(self, value: float) -> float:
        return value

    def symbol(self, symbol: Any) -> float:
        return self._values[symbol]

    def call(self, name: str, *arguments: float) -> float:
        return IN_PYTHON[name](*arguments)


class Numbers:
    """The symbols of one graph, and the nodes that hold their values and those of expressions over them."""

    def __init__(self, graph: fx.Graph, symbols: Symbols, device: torch.device) -> None:
        self._graph = graph
        self._device = device
        self._known: dict[Any, fx.Node] = {}
        with symbols.mode:
            self._value = torch.empty((), dtype=torch.float64, device=device)

    def enter(self, value: Any, node: fx.Node) -> None:
        """A symbol whose value a node gives, as a 0-d tensor of float64."""
        self.enter_value(node)
        self._known[value.node.expr] = node

    def enter_value(self, node: fx.Node) -> None:
        """Every number is a 0-d tensor of float64."""
        node.meta["val"] = self._value

    def read(self, value: Any, node: fx.Node) -> None:
        """A symbol for the element of a tensor."""
        if isinstance(value, torch.SymInt | torch.SymFloat):
            self.enter(value, self._float64(node))

    def node(self, value: Any) -> fx.Node:
        """The node of a symbolic number. Raises UnknownNumber."""
        return folded(value.node.expr, self)

    # The algebra of nodes --------------------------------------------------------------------------------------------

    def number(self, value: float) -> fx.Node:
        return self._once((value,), aten.full.default, ([], value), {"dtype": torch.float64, "device": self._device})

    def symbol(self, symbol: Any) -> fx.Node:
        if symbol not in self._known:
            raise UnknownNumber(f"{symbol} is known to nobody")
        return self._known[symbol]

    def call(self, name: str, *arguments: fx.Node) -> fx.Node:
        return self._once((name, *arguments), IN_ATEN[name], arguments, {})

    def _float64(self, node: fx.Node) -> fx.Node:
        if node.meta["val"].dtype == torch.float64:
            return node
        return self._once(("float64", node), aten._to_copy.default, (node,), {"dtype": torch.float64})

    def _once(self, key: Any, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        if key not in self._known:
            node = self._graph.call_function(op, args, kwargs)
            self.enter_value(node)
            self._known[key] = node
        return self._known[key]
