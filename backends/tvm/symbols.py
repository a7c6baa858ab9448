"""Symbolic sizes: from torch's sympy expressions to TIR expressions and to Python text."""

from __future__ import annotations

import functools
from typing import Any

import sympy
import torch

from bridge.backends.tvm.compat import tirx
from bridge.errors import BridgeError

FLOOR_DIVISIONS = ("FloorDiv", "CleanDiv", "FloorToInt")
REMAINDERS = ("Mod", "PythonMod")


class UnknownExpression(BridgeError, ValueError):
    """A size is given by an expression that the program has no words for."""


class Symbols:
    """The symbolic sizes of one graph, each one TIR variable."""

    def __init__(self) -> None:
        self._variables: dict[str, Any] = {}

    def size(self, value: Any) -> Any:
        """An int as it is; a SymInt or a SymFloat as a TIR expression. Raises UnknownExpression."""
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return self._expression(value.node.expr, "int64" if isinstance(value, torch.SymInt) else "float64")
        return value

    def _expression(self, expr: Any, dtype: str) -> Any:
        if isinstance(expr, sympy.Integer):
            return tirx.IntImm("int64", int(expr)) if dtype == "int64" else tirx.FloatImm("float64", float(expr))
        if isinstance(expr, sympy.Float | sympy.Rational):
            return tirx.FloatImm("float64", float(expr))
        if isinstance(expr, sympy.Symbol):
            variable = self._variables.setdefault(expr.name, tirx.Var(expr.name, "int64"))
            return variable if dtype == "int64" else tirx.Cast(dtype, variable)
        kind = type(expr).__name__
        if isinstance(expr, sympy.Add | sympy.Mul):
            total = self._expression(expr.args[0], dtype)
            for argument in expr.args[1:]:
                part = self._expression(argument, dtype)
                total = total + part if isinstance(expr, sympy.Add) else total * part
            return total
        if isinstance(expr, sympy.Pow) and expr.args[1].is_Integer and expr.args[1] > 1:
            base = total = self._expression(expr.args[0], dtype)
            for _ in range(int(expr.args[1]) - 1):
                total = total * base
            return total
        if isinstance(expr, sympy.Pow) and expr.args[1] == -1 and dtype == "float64":
            return tirx.FloatImm("float64", 1.0) / self._expression(expr.args[0], dtype)
        if kind in FLOOR_DIVISIONS and len(expr.args) == 2:
            return tirx.floordiv(*(self._expression(a, "int64") for a in expr.args))
        if kind in REMAINDERS:
            return tirx.floormod(*(self._expression(a, "int64") for a in expr.args))
        if kind in ("Min", "Max") and dtype == "int64":
            parts = [self._expression(a, "int64") for a in expr.args]
            return functools.reduce(tirx.min if kind == "Min" else tirx.max, parts)
        if kind in ("FloatTrueDiv", "IntTrueDiv"):
            return self._expression(expr.args[0], "float64") / self._expression(expr.args[1], "float64")
        if kind == "ToFloat":
            return self._expression(expr.args[0], "float64")
        raise UnknownExpression(f"the size {expr} holds {kind}, which the program cannot compute")


def text_of(value: Any) -> str:
    """A size, a symbolic one too, as Python text over the names of the symbols. Raises UnknownExpression."""
    return _text(value.node.expr) if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else repr(value)


def _text(expr: Any) -> str:
    if isinstance(expr, sympy.Integer):
        return str(int(expr))
    if isinstance(expr, sympy.Float | sympy.Rational):
        return repr(float(expr))
    if isinstance(expr, sympy.Symbol):
        return expr.name
    kind = type(expr).__name__
    parts = [_text(a) for a in expr.args]
    if isinstance(expr, sympy.Add | sympy.Mul):
        return "(" + (" + " if isinstance(expr, sympy.Add) else "*").join(parts) + ")"
    if isinstance(expr, sympy.Pow) and expr.args[1].is_Integer and expr.args[1] > 1:
        return "(" + "*".join([parts[0]] * int(expr.args[1])) + ")"
    if isinstance(expr, sympy.Pow):
        return f"({parts[0]}**{parts[1]})"
    if kind in FLOOR_DIVISIONS and len(parts) == 2:
        return f"({parts[0]}//{parts[1]})"
    if kind in REMAINDERS:
        return f"({parts[0]} % {parts[1]})"
    if kind in ("FloatTrueDiv", "IntTrueDiv"):
        return f"({parts[0]}/{parts[1]})"
    if kind == "ToFloat":
        return f"float({parts[0]})"
    if kind in ("Max", "Min"):
        return f"{kind.lower()}({', '.join(parts)})"
    raise UnknownExpression(f"the size {expr} holds {kind}, which the program cannot compute")
