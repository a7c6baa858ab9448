"""Symbolic sizes as Python text, and what the symbols are where sizes are known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from bridge.errors import BridgeError

FLOOR_DIVISIONS = ("FloorDiv", "CleanDiv", "FloorToInt")
REMAINDERS = ("Mod", "PythonMod")
COMPARISONS: Mapping[type, str] = {
    sympy.Eq: "==", sympy.Ne: "!=", sympy.Ge: ">=", sympy.Gt: ">", sympy.Le: "<=", sympy.Lt: "<"
}  # fmt: skip
CONNECTIVES: Mapping[type, str] = {sympy.And: " and ", sympy.Or: " or "}


class UnknownExpression(BridgeError, ValueError):
    """A size is given by an expression that the program has no words for."""


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
    if isinstance(expr, sympy.logic.boolalg.BooleanAtom):
        return str(bool(expr))
    if isinstance(expr, sympy.Piecewise):
        return _text_of_cases(expr.args)
    kind = type(expr).__name__
    parts = [_text(a) for a in expr.args]
    if type(expr) in COMPARISONS:
        return f"({parts[0]} {COMPARISONS[type(expr)]} {parts[1]})"
    if type(expr) in CONNECTIVES:
        return f"({CONNECTIVES[type(expr)].join(parts)})"
    if isinstance(expr, sympy.Not):
        return f"(not {parts[0]})"
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
    if kind == "CeilToInt" and type(expr.args[0]).__name__ == "IntTrueDiv":
        number, by = (_text(a) for a in expr.args[0].args)
        return f"(({number} + {by} - 1)//{by})"
    if kind == "ToFloat":
        return f"float({parts[0]})"
    if kind == "TruncToInt":
        return f"int({parts[0]})"
    if kind in ("FloatPow", "PowByNatural"):
        return f"({parts[0]}**{parts[1]})"
    if kind in ("Max", "Min"):
        return f"{kind.lower()}({', '.join(parts)})"
    raise UnknownExpression(f"the size {expr} holds {kind}, which the program cannot compute")


def _text_of_cases(cases: Sequence[Any]) -> str:
    """The first whose condition holds; the last one holds always."""
    *others, last = cases
    text = _text(last.expr)
    for case in reversed(others):
        text = f"({_text(case.expr)} if {_text(case.cond)} else {text})"
    return text


def solved(values: Sequence[tuple[str, Any]], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """What the symbols of some values are that are not known yet, as Python text: each symbol once, in an order of use.

    values: with their names. A symbol is a value itself, a size or the offset of a tensor, or what makes such an
    expression true: a backward may be given n + 40 and no n.
    """
    tensors = [(name, value) for name, value in values if isinstance(value, torch.Tensor)]
    sizes = [(size, f"{name}.shape[{dim}]") for name, value in tensors for dim, size in enumerate(value.shape)]
    given = [*_expressions([*((value, name) for name, value in values), *sizes]), *_truths(values)]
    given.sort(key=lambda one: not one[0].is_Symbol)
    given += _expressions([layout for name, value in tensors for layout in _layout(name, value)])
    told = set(known)
    while answer := next(_solutions(given, told), None):
        told.add(answer[0])
        yield answer


def told_together(values: Sequence[tuple[str, Any]], known: Collection[str]) -> Iterator[str]:
    """The symbols that may be any number, as u0 where no more is known of it and u1 than a size n + u0 + u1.

    So it is in a backward where torch has traced the forward twice, with other symbols for numbers that are read.
    """
    tensors = [(name, value) for name, value in values if isinstance(value, torch.Tensor)]
    sizes = [expr for expr, _ in _expressions([(size, "") for _, value in tensors for size in value.shape])]
    every = sizes + [expr for expr, _ in _expressions([one for tensor in tensors for one in _layout(*tensor)])]
    whole, free = sympy.Symbol("whole", integer=True), set[str]()
    for expr in sizes:
        first, *others = sorted((s for s in expr.free_symbols if str(s) not in {*known, *free}), key=str) or (None,)
        if others and expr.coeff(first, 1) == 1:
            rest = [one.subs(first, whole + first - expr) for one in every]
            if not any(one.free_symbols & {first, *others} for one in rest):
                free.update(map(str, others))
                yield from map(str, others)


def _expressions(values: Iterable[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """The expressions of those that are symbolic, with their texts."""
    return [(value.node.expr, text) for value, text in values if isinstance(value, torch.SymInt | torch.SymFloat)]


def _truths(values: Sequence[tuple[str, Any]]) -> Iterator[tuple[Any, str]]:
    """The symbols that are 1 where a value holds and else 0, as torch has them for a bool that is read."""
    for name, value in values:
        node: Any = value.node if isinstance(value, torch.SymBool) else None
        if node is not None and isinstance(node.expr, sympy.Eq) and node.expr.lhs.is_Symbol and node.expr.rhs == 1:
            told = node.shape_env.bound_sympy(node.expr.lhs)
            if told.lower >= 0 and told.upper <= 1:  # n == 1 does not tell another n
                yield node.expr.lhs, f"int({name})"


def _layout(name: str, value: torch.Tensor) -> Iterator[tuple[Any, str]]:
    """The strides and the offset of a tensor: asked last, for ATen may lay it out otherwise than a fake tensor says."""
    if value.layout == torch.strided:
        yield from ((stride, f"{name}.stride({dim})") for dim, stride in enumerate(value.stride()))
        yield value.storage_offset(), f"{name}.storage_offset()"


def _solutions(given: Iterable[tuple[Any, str]], told: Collection[str]) -> Iterator[tuple[str, str]]:
    """The symbols that are alone unknown in one of the expressions, with what they are."""
    for expr, text in given:
        unknown = [symbol for symbol in expr.free_symbols if str(symbol) not in told]
        answer = _solution(expr, text, unknown[0]) if len(unknown) == 1 else None
        if answer is not None:
            yield str(unknown[0]), answer


def _solution(expr: Any, text: str, symbol: Any) -> str | None:
    """What a symbol is where an expression has a value; None where the expression is not linear in it."""
    if expr == symbol:
        return text
    factor, rest = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
    if factor == 0 or sympy.expand(factor * symbol + rest - expr) != 0:
        return None
    return f"({text} - {_text(rest)})//{_text(factor)}"
