"""Functions that need not be more exact than the 16 bits which their results are rounded to, in fewer instructions.

Of a bfloat16 float32 has 16 digits more. What is within a few units of float32 is as right after rounding, whatever is
added in between ("close"); what is within 2**-17 of its value is, where nothing but factors come in between ("rough").
Between a float16 and float32 lie 13 digits: there nothing is added to either.

`eased` says which functions are such; `NEAR` writes them, on the hardware's own exponential and reciprocal. The
coefficients are minimax fits of our own, by Lawson's reweighting: of erf(x) / x in x**2 up to 2.65, of tanh(x) / x as a
quotient in x**2 up to 4.6, both rounding to 1 beyond, and of log2(erfc(x)) up to 4 to half of what an erf in float32
loses when it is taken from 1.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from bridge.backends.tvm.index import Axis
from bridge.backends.tvm.scalar import Constant, Guarded, Operation, Reduced, Scalar, inside, walk
from bridge.backends.tvm.schedule.functions import Bind, Lane
from bridge.backends.tvm.schedule.nest import Nest

CLOSE, ROUGH, SUMS = 1, 2, 4
"""What a value may be: off by a few units, off by 2**-17, and whether it may be so where it is added to others."""

ROUNDED: Mapping[str, int] = {"bfloat16": CLOSE | ROUGH | SUMS, "float16": CLOSE | ROUGH}
"""What may be rounded to a type."""

FLOATS = ("float32", *ROUNDED)
FACTORS = ("Mul", "Div", "Select", "Max", "Min", "Cast", "tirx.fabs")
TERMS = ("Add", "Sub")

NEEDS = {"tirx.exp": CLOSE, "tirx.sigmoid": CLOSE, "Div": CLOSE, "tirx.erf": ROUGH, "tirx.tanh": ROUGH}
"""What has to be allowed of a function to be written so."""

WITH_ONE = {"tirx.erf": "near.one_and_erf", "tirx.tanh": "near.one_and_tanh"}
"""Functions that lose what they are near -1 by when they are added to 1, and the sum, which does not."""


def eased(nest: Nest) -> Nest:
    """The nest with functions by another name where they may be near."""
    nodes = _all(nest.scalars)
    same = _classes(nodes)
    allowed = _allowed(nest, nodes, same)
    done: dict[int, Scalar] = {}
    for node in nodes:
        what = ROUNDED.get(node.dtype, allowed.get(same[id(node)], 0))
        done[id(node)] = _by_row(_near(node, _rebuilt(node, done), what, done), nest.cols)
    reductions = tuple(replace(r, body=done[id(r.body)]) for r in nest.reductions)
    return Nest(nest.rows, nest.cols, reductions, tuple(replace(s, body=done[id(s.body)]) for s in nest.stores))


def _all(roots: Iterable[Scalar]) -> list[Scalar]:
    """Every node once, operands first."""
    return list({id(node): node for root in roots for node in walk(root)}.values())


def _classes(nodes: Iterable[Scalar]) -> dict[int, int]:
    """For each node, operands first, a number that it shares with those that say the same.

    A function may stand in a kernel twice, once where it has to be exact, and whoever wrote it may count on both being
    equal: exp(x) - 1 is mended by the logarithm of that very exp(x).
    """
    numbers: dict[Any, int] = {}
    found: dict[int, int] = {}
    for node in nodes:
        own = node.key if not node.operands else (node.dtype, type(node), getattr(node, "name", ""))
        key = own, tuple(found[id(operand)] for operand in node.operands)
        found[id(node)] = numbers.setdefault(key, len(numbers))
    return found


def _allowed(nest: Nest, nodes: Sequence[Scalar], same: Mapping[int, int]) -> dict[int, int]:
    """What each class of nodes may be: what all who use one allow, which is nothing where it goes to memory or is an
    index."""
    totals = {r.value: CLOSE | ROUGH | SUMS for r in nest.reductions}
    while True:
        found: dict[int, int] = {same[id(s.body)]: 0 for s in nest.stores}
        for reduction in nest.reductions:
            what = _terms(totals[reduction.value]) if reduction.combine == "sum" else 0
            body = same[id(reduction.body)]
            found[body] = found.get(body, what) & what
        for node in reversed(nodes):
            for operand, what in _handed_on(node, ROUNDED.get(node.dtype, found.get(same[id(node)], 0))):
                found[same[id(operand)]] = found.get(same[id(operand)], what) & what
        told = dict(totals)
        for node in nodes:
            if isinstance(node, Reduced) and node.value in told:
                told[node.value] &= ROUNDED.get(node.dtype, found.get(same[id(node)], 0))
        if told == totals:
            return found
        totals = told


def _handed_on(node: Scalar, what: int) -> list[tuple[Scalar, int]]:
    """What a node allows each of those that it is computed from, if so much is allowed of itself."""
    exact = [(scalar, 0) for scalar in inside(node)]
    if isinstance(node, Guarded):
        return [*exact, (node.condition, 0), (node.then, what), (node.otherwise, what)]
    if not isinstance(node, Operation):
        return exact
    if node.dtype not in FLOATS or node.name not in (*FACTORS, *TERMS):
        return [*exact, *((a, 0) for a in node.arguments)]
    if node.name in TERMS:
        return [(a, _terms(what)) for a in node.arguments]
    return [(a, 0 if n == 0 and node.name == "Select" else what) for n, a in enumerate(node.arguments)]


def _terms(what: int) -> int:
    return what & (CLOSE | SUMS) if what & SUMS else 0


def _rebuilt(node: Scalar, done: Mapping[int, Scalar]) -> Scalar:
    """The node over what its operands have become; the same one where they are as they were."""
    operands = [done[id(o)] for o in node.operands]
    if all(new is old for new, old in zip(operands, node.operands, strict=True)):
        return node
    if isinstance(node, Guarded):
        return Guarded(operands[0], operands[1], operands[2], node.dtype)
    assert isinstance(node, Operation)
    return Operation(node.name, tuple(operands), node.dtype)


def _near(node: Scalar, rebuilt: Scalar, what: int, done: Mapping[int, Scalar]) -> Scalar:
    """A node that has been rebuilt as the function that is near, if that may be."""
    if not isinstance(node, Operation) or not isinstance(rebuilt, Operation) or node.dtype not in FLOATS:
        return rebuilt
    if node.dtype == "float32" and node.name in TERMS and what & CLOSE:
        for one, other in (node.arguments, node.arguments[::-1]):
            sign = 1 if node.name == "Add" else -1 if other is node.arguments[1] else 0
            is_one = isinstance(one, Constant) and one.value == 1
            if sign and is_one and isinstance(other, Operation) and other.name in WITH_ONE:
                of = done[id(other.arguments[0])]
                of = of if sign == 1 else Operation("Mul", (of, Constant(-1.0, "float32")), "float32")
                return Operation(WITH_ONE[other.name], (of,), "float32")
    if node.name in NEEDS and NEEDS[node.name] & what:
        return Operation(f"near.{node.name.removeprefix('tirx.')}", rebuilt.arguments, node.dtype)
    return rebuilt


def _by_row(node: Scalar, columns: Sequence[Axis]) -> Scalar:
    """A quotient by what a row has one of as a product with its reciprocal, scaled lest that should be infinite."""
    if not isinstance(node, Operation) or node.name != "near.Div" or not columns:
        return node
    above, below = node.arguments
    if isinstance(below, Constant) or below.axes.intersection(columns):
        return node
    scaled = Operation("Mul", (above, Operation("near.scale", (below,), "float32")), "float32")
    return Operation("Mul", (scaled, Operation("near.reciprocal", (below,), "float32")), node.dtype)


# Functions of float32 ------------------------------------------------------------------------------------------------

LOG2_E = 1.4426950408889634
TINY = 2.0**-32


def called(name: str, *arguments: Any) -> Any:
    """A function that the source of kernels begins with."""
    return tirx.call_pure_extern("float32", f"bridge_{name}", *arguments)


def divide(x: Any, y: Any, bind: Bind) -> Any:
    """Within two units."""
    return called("divided", x, y)


def scale(x: Any, bind: Bind) -> Any:
    """What brings the smallest numbers to where they have a reciprocal."""
    lane = Lane(x, bind)
    return lane.choose(lane.call("fabs", "float32", x) < lane.real(2.0**-64), lane.real(2.0**64), lane.real(1.0))


def reciprocal(x: Any, bind: Bind) -> Any:
    """1 / x, of an x that is scaled."""
    return Lane(x, bind).real(1.0) / (x * scale(x, bind))


def exp(x: Any, bind: Bind) -> Any:
    """Within 2 + 1.2 abs(x) units, denormal numbers too."""
    return called("exp2", x * Lane(x, bind).real(LOG2_E))


def sigmoid(x: Any, bind: Bind) -> Any:
    """1 / (1 + exp(-x)), its quotient away from the denormal numbers, which the hardware's reciprocal has none of."""
    lane = Lane(x, bind)
    power = called("exp2_or_0", x * lane.real(-LOG2_E))
    return called("reciprocal", power * lane.real(TINY) + lane.real(TINY)) * lane.real(TINY)


def one_and_tanh(x: Any, bind: Bind) -> Any:
    """1 + tanh(x) = 2 sigmoid(2 x)."""
    return sigmoid(x + x, bind) * Lane(x, bind).real(2.0)


def tanh(x: Any, bind: Bind) -> Any:
    """Within 2**-19."""
    lane = Lane(x, bind)
    inside = bind(called("within", x, lane.real(4.6)))
    z = bind(inside * inside)
    return inside * lane.polynomial(z, TANH) * called("reciprocal", lane.polynomial(z, UNDER_TANH))


def erf(x: Any, bind: Bind) -> Any:
    """Within 2**-17."""
    lane = Lane(x, bind)
    inside = bind(called("within", x, lane.real(2.65)))
    return inside * lane.polynomial(bind(inside * inside), ERF)


def one_and_erf(x: Any, bind: Bind) -> Any:
    """erfc(-x): 2 to a polynomial in abs(x), or that taken from 2. The polynomial falls without end beyond the fit."""
    lane = Lane(x, bind)
    power = bind(called("exp2_or_0", lane.polynomial(bind(lane.call("fabs", "float32", x)), LOG2_ERFC)))
    return lane.choose(x < lane.real(0.0), power, lane.real(2.0) - power)


TANH = (0.00168521285, 0.11727102, 0.999998908)
UNDER_TANH = (6.78871043e-05, 0.0185636389, 0.450595017, 1.0)
ERF = (9.17803874e-08, -3.53226716e-06, 6.13969006e-05, -0.000649229896, 0.00476968176, -0.0262722362, 0.11243273,
       -0.376015596, 1.12837391)  # fmt: skip
LOG2_ERFC = (-2.80151591e-05, 0.000294469153, -0.000966034492, -0.00169982558, 0.0291414023, -0.148935089,
             -0.918304699, -1.62791894, 1.62775483e-07)  # fmt: skip

NEAR: Mapping[str, Callable[..., Any]] = {
    "near.Div": divide,
    "near.erf": erf,
    "near.exp": exp,
    "near.one_and_erf": one_and_erf,
    "near.one_and_tanh": one_and_tanh,
    "near.reciprocal": reciprocal,
    "near.scale": scale,
    "near.sigmoid": sigmoid,
    "near.tanh": tanh,
}
"""Functions of float32 by the names that `eased` gives."""
