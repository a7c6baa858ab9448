"""The table of conversions: what an ATen overload is in Relax, and which calls of it are taken.

A row is a function from Relax expressions to a Relax expression, named and parameterised as the ATen schema is; `self`
is written `x`. What a row supports is the parameters that it names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload

from bridge.ir.promotion import Promote
from bridge.ir.rows import schema_names
from bridge.ir.schema import defaults, numeric

__all__ = [
    "TABLE",
    "Accumulate",
    "Conversion",
    "Promote",
    "converts",
    "converts_when_there",
    "missing",
    "present",
    "table",
]

ABOUT_THE_RESULT = ("out", "sizes", "given")
"""What a row can ask for behind `*`: the fake tensor of its result, the result's sizes as expressions, and by name

its arguments as fake tensors and plain values, for what torch decides by how a tensor lies in memory.
"""

STANDS_FOR_A_TENSOR = ("self", "other", "exponent", "min", "max")
"""The names under which a number stands where a tensor could, and takes part in type promotion."""


class Accumulate(Enum):
    """The type in which a row adds up. Results are given in the type of the fake tensor whatever it is.

    OPMATH: float32 for 16-bit floats, everything else in its own type.
    RESULT: the result's type, or float32 where that is a 16-bit float; small integers are so summed in int64.
    """

    OPMATH = "opmath"
    RESULT = "result"


@dataclass(frozen=True)
class Conversion:
    """One row. `parameters` are the schema names that it takes, `place` is where it stands ("ops.view.unsqueeze")."""

    op: OpOverload
    fn: Callable[..., Any]
    promote: Promote | None
    among: tuple[str, ...]
    accumulate: Accumulate | None
    refuses: Callable[..., str | None] | None
    symbolic: bool
    place: str
    parameters: tuple[str, ...] = field(init=False)
    about: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = schema_names(self.fn)
        unknown = [n for n in names if n not in defaults(self.op) and n not in ABOUT_THE_RESULT]
        if unknown:
            raise TypeError(f"{self.place} names {', '.join(unknown)}, which {self.op} does not have")
        object.__setattr__(self, "parameters", tuple(n for n in names if n in defaults(self.op)))
        object.__setattr__(self, "about", tuple(n for n in names if n not in defaults(self.op)))


_rows: dict[OpOverload, Conversion] = {}
TABLE = MappingProxyType(_rows)
"""Every row by its overload. Filled when `bridge.backends.tvm.ops` is imported; `table()` sees to that."""

awaited: dict[str, tuple[Callable[..., Any], Mapping[str, Any], str]] = {}

"""Rows for ops of libraries that are not imported yet, by name: the function, its rules, and where it stands."""

missing: list[str] = []
"""Overloads that a row was written for and that this torch does not have."""


def converts(
    *ops: OpOverload,
    promote: Promote | None = None,
    among: tuple[str, ...] = (),
    accumulate: Accumulate | None = None,
    refuses: Callable[..., str | None] | None = None,
    symbolic: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a row for each overload, and give the function back unchanged.

    promote: torch's rule for the types of an element-wise op: arguments are cast before, the result after.
    among: the arguments that are promoted together; all tensors, and the numbers that stand for one, if not given.
    accumulate: the type in which sums are kept. refuses: names the arguments it needs, and gets fake tensors and plain
    values; the reason why a call is not taken, or None. symbolic: tested with symbolic sizes.
    Raises ValueError for a second row, TypeError for a parameter that the schema does not have.
    """
    caller = inspect.currentframe()
    module = caller.f_back.f_globals["__name__"] if caller and caller.f_back else ""

    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        place = f"{module.removeprefix('bridge.backends.tvm.')}.{fn.__name__}"
        for op in ops:
            _enter(op, fn, place, promote, among, accumulate, refuses, symbolic)
        return fn

    return enter


def _enter(
    op: OpOverload,
    fn: Callable[..., Any],
    place: str,
    promote: Promote | None = None,
    among: tuple[str, ...] = (),
    accumulate: Accumulate | None = None,
    refuses: Callable[..., str | None] | None = None,
    symbolic: bool = False,
) -> None:
    if op in _rows:
        raise ValueError(f"{op} is already converted by {_rows[op].place}")
    _rows[op] = Conversion(op, fn, promote, among or promoted(op), accumulate, refuses, symbolic, place)


def converts_when_there(name: str, **rules: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `converts`, for an op of another library ("vision.nms.default"), once that is imported."""
    caller = inspect.currentframe()
    module = caller.f_back.f_globals["__name__"] if caller and caller.f_back else ""

    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        awaited[name] = (fn, rules, f"{module.removeprefix('bridge.backends.tvm.')}.{fn.__name__}")
        return fn

    return enter


def promoted(op: OpOverload) -> tuple[str, ...]:
    """The arguments that take part in type promotion where a row says nothing else."""
    return tuple(n for n, kind in numeric(op).items() if kind == "Tensor" or n in STANDS_FOR_A_TENSOR)


def present(*names: str, having: str = "") -> list[OpOverload]:
    """The overloads of these names ("aten.rms_norm.default") that this torch has; the others are kept in `missing`.

    having: an argument that they have to have, where another torch calls it otherwise.
    """
    found = {name: overload_of(name) for name in names}
    found = {name: op if op and (not having or having in defaults(op)) else None for name, op in found.items()}
    missing.extend(name for name, op in found.items() if op is None)
    return [op for op in found.values() if op is not None]


def overload_of(name: str) -> OpOverload | None:
    """The overload of a name, None where nobody has registered it."""
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)


def table() -> MappingProxyType[OpOverload, Conversion]:
    """The filled table. Imports TVM the first time; raises TvmUnavailable if that fails."""
    import bridge.backends.tvm.ops  # noqa: F401

    for name in list(awaited):
        op = overload_of(name)
        if op is not None:
            fn, rules, place = awaited.pop(name)
            _enter(op, fn, place, **rules)
    return TABLE
