"""The table of launchers: which ATen overloads Triton kernels of ours stand for, and which calls of them are taken.

A row is a launcher, a function from torch's tensors to torch's tensors, named and parameterised as the ATen schema is;
`self` is written `x`. What a row supports is the parameters that it names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch._ops import OpOverload

from bridge.ir.rows import schema_names
from bridge.ir.schema import defaults

CONFIG = "config"
"""Under this name a launcher takes one of its row's configurations, behind `*`."""

Config = Mapping[str, Any]
"""Meta-parameters of a kernel, and how it is compiled: {"BLOCK": 1024, "num_warps": 4}."""


@dataclass(frozen=True)
class Row:
    """One row. `parameters` are the schema names that it takes, `place` is where it stands ("kernels.scan.cumsum")."""

    op: OpOverload
    fn: Callable[..., Any]
    configs: tuple[Config, ...]
    below: Callable[..., Mapping[str, Any]] | None
    refuses: Callable[..., str | None] | None
    ordered: bool
    symbolic: bool
    place: str
    parameters: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = [name for name in schema_names(self.fn) if name != CONFIG]
        unknown = [name for name in names if name not in defaults(self.op)]
        if unknown:
            raise TypeError(f"{self.place} names {', '.join(unknown)}, which {self.op} does not have")
        object.__setattr__(self, "parameters", tuple(names))


_rows: dict[OpOverload, Row] = {}
TABLE = MappingProxyType(_rows)
"""Every row by its overload. Filled when `bridge.backends.triton.kernels` is imported; `table()` sees to that."""


def launches(
    *ops: OpOverload,
    configs: tuple[Config, ...] = ({},),
    below: Callable[..., Mapping[str, Any]] | None = None,
    refuses: Callable[..., str | None] | None = None,
    ordered: bool = True,
    symbolic: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a row for each overload, and give the launcher back unchanged.

    configs: what the launcher can be told as `config`; at each shape the quickest is taken, or ATen where that is
    quicker. below: names the arguments it needs, and gives for arguments that hold whole numbers the one that all are
    below; a list for a list. refuses: names the arguments it needs; the reason why a call is not taken, or None.
    ordered: sums are made in one order, always; else no call is taken under `torch.use_deterministic_algorithms`.
    Raises ValueError for a second row, TypeError for a parameter that the schema does not have.
    """
    caller = inspect.currentframe()
    module = caller.f_back.f_globals["__name__"] if caller and caller.f_back else ""

    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        place = f"{module.removeprefix('bridge.backends.triton.')}.{fn.__name__}"
        for op in ops:
            if op in _rows:
                raise ValueError(f"{op} is already launched by {_rows[op].place}")
            _rows[op] = Row(op, fn, configs, below, refuses, ordered, symbolic, place)
        return fn

    return enter


def table() -> MappingProxyType[OpOverload, Row]:
    """The filled table. Imports Triton the first time."""
    import bridge.backends.triton.kernels  # noqa: F401

    return TABLE
