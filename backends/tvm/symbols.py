"""Symbolic sizes: from torch's sympy expressions to TIR expressions."""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any

import sympy
import torch

from bridge.backends.tvm.compat import tirx
from bridge.ir.sizes import FLOOR_DIVISIONS, REMAINDERS, UnknownExpression


class Symbols:
    """The symbolic sizes of one graph, each one TIR variable."""

    def __init__(self) -> None:
        self._variables: dict[str, Any] = {}

    def size(self, value: Any) -> Any:
        """An int as it is; a SymInt, or a SymFloat of whole ones, as a TIR expression. Raises UnknownExpression."""
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return self._expression(value.node.expr, "int64" if isinstance(value, torch.SymInt) else "float64")
        return value

    def all_of(self, value: Any) -> list[Any]:
        """A size; for what Relax's shapes cannot hold, the symbols that it depends on."""
        if not isinstance(value, torch.SymBool | torch.SymFloat):
            with suppress(UnknownExpression):
                return [self.size(value)]
        names = sorted(str(symbol) for symbol in value.node.expr.free_symbols)
        return [self._variables.setdefault(name, tirx.Var(name, "int64")) for name in names]

    def _expression(self, expr: Any, dtype: str) -> Any:
        if isinstance(expr, sympy.Integer):
            return tirx.IntImm("int64", int(expr)) if dtype == "int64" else tirx.FloatImm("float64", float(expr))
        if isinstance(expr, sympy.Float | sympy.Rational):
            return tirx.FloatImm("float64", float(expr))
        if isinstance(expr, sympy.Symbol):
            if not expr.is_integer:
                raise UnknownExpression(f"{expr} is no size, and a kernel is given whole numbers alone")
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
        if kind == "CeilToInt" and type(expr.args[0]).__name__ == "IntTrueDiv":
            number, by = (self._expression(a, "int64") for a in expr.args[0].args)
            return tirx.floordiv(number + by - 1, by)
        if kind == "ToFloat":
            return self._expression(expr.args[0], "float64")
        raise UnknownExpression(f"the size {expr} holds {kind}, which the program cannot compute")
