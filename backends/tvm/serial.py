"""Which rows can come to write loops in which one step follows another. A GPU would do them with one of its threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from bridge.backends.tvm.kernels import loops
from bridge.backends.tvm.table import Conversion


def is_serial(row: Conversion) -> bool:
    """Whether the row, or a function that it calls, names `loops`."""
    return _names_loops(row.fn)


@cache
def _names_loops(function: Callable[..., Any]) -> bool:
    return any(called is loops for called in _called(function, set()))


def _called(function: Any, seen: set[Any]) -> Iterator[Any]:
    """The functions that a function names, and those that they name, itself first."""
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    yield function
    for code in _codes(function.__code__):
        for name in code.co_names:
            yield from _called(function.__globals__.get(name), seen)
    for cell in function.__closure__ or ():
        yield from _called(cell.cell_contents, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of those that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
