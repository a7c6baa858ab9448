"""Ops over lists of tensors, written as the op of one tensor for each: by names and schemas, so also those to come."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten

PREFIX = "_foreach_"


def _powers(x: Tensor, order: Any = 2, dtype: torch.dtype | None = None) -> Tensor:
    return x.abs().pow(order).sum(dtype=dtype)


def _scaled(one: Callable[..., Tensor], x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    return one(x, value * a, b) if isinstance(value, Tensor) else one(x, a, b, value=value)


def _bounded(of_tensors: Callable[..., Tensor], of_numbers: Callable[..., Tensor], x: Tensor, bound: Any) -> Tensor:
    return of_tensors(x, bound) if isinstance(bound, Tensor) else of_numbers(x, bound)


OF_ANOTHER_NAME: dict[str, Callable[..., Any]] = {
    "addcdiv": functools.partial(_scaled, torch.addcdiv),
    "addcmul": functools.partial(_scaled, torch.addcmul),
    "copy": lambda x, source, _=False: source.to(x.dtype, copy=True).expand(x.shape),
    "maximum": functools.partial(_bounded, torch.maximum, torch.clamp_min),
    "minimum": functools.partial(_bounded, torch.minimum, torch.clamp_max),
    "norm": lambda x, order=2, dtype=None: aten.linalg_vector_norm.default(x, order, dtype=dtype),
    "powsum": _powers,
    "zero": torch.zeros_like,
}
"""The ops of one tensor that are not called as the op over lists is."""


def over_lists() -> dict[OpOverload, Callable[..., Any]]:
    """For each overload over lists that gives a new list, how it is written."""
    found: dict[OpOverload, Callable[..., Any]] = {}
    for name in dir(torch):
        one = OF_ANOTHER_NAME.get(plain := name.removeprefix(PREFIX)) or getattr(aten, plain, None)
        if not name.startswith(PREFIX) or name.endswith("_") or one is None:
            continue
        for overload in _overloads(getattr(aten, name)):
            if [str(result.type) for result in overload._schema.returns] == ["List[Tensor]"]:
                found[overload] = functools.partial(_for_each, overload, one)
    return found


def _overloads(packet: Any) -> list[OpOverload]:
    return [getattr(packet, name) for name in packet.overloads() if not getattr(packet, name)._schema.is_mutable]


def _for_each(overload: OpOverload, one: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    """What the op of one tensor gives of each element of the lists. What is no list is the same for all of them."""
    arguments = overload._schema.arguments
    lists = {a.name for a in arguments if str(a.type) in ("List[Tensor]", "List[number]") or a.name == "scalars"}
    named = [(a.name, value) for a, value in zip(arguments, args, strict=False)]
    count = len(next(value for name, value in [*named, *kwargs.items()] if name in lists))

    def part(name: str, value: Any, number: int) -> Any:
        return value[number] if name in lists else value

    return [
        one(
            *(part(name, value, number) for name, value in named),
            **{name: part(name, value, number) for name, value in kwargs.items()},
        )
        for number in range(count)
    ]
