"""Notice, in a few microseconds, that something which a program was compiled for is no longer so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any

import torch
from torch import nn

TensorGuards: Any = getattr(torch._C._dynamo.guards, "TensorGuards", None)  # type: ignore[attr-defined]
"""torch's own check of many tensors, in C++, where this torch has it."""

NUMBERS = (bool, int, float, complex)
CONSTANTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
"""Types of which two equal values say the same."""


class Watch:
    """Remembers what some mappings and lists hold. An entry counts as changed when it is another object.

    Looking at all of them is one comparison of lists in C, which takes equal entries for the same. Of some that can be
    equal and still another thing it is looked at which they are; only where something differs is each entry compared by
    itself.
    """

    def __init__(self, mappings: Iterable[dict[Any, Any]], lists: Iterable[list[Any]] = ()) -> None:
        self._mappings = list(mappings)
        self._lists = list(lists)
        self._take()

    def _take(self) -> None:
        self._entries = self._current()
        entries = [(n, at, entry) for n, held in enumerate(self._entries) for at, entry in enumerate(held)]
        told_apart = [(n, at) for n, at, entry in entries if _equals_another(entry)]
        self._places = told_apart
        self._objects = [self._entries[n][at] for n, at in told_apart]

    def _current(self) -> list[list[Any]]:
        return [*map(list, map(dict.values, self._mappings)), *map(list, self._lists)]

    def same(self) -> bool:
        """Whether every entry is the object that it was, or one that equals it in all that it says."""
        now = self._current()
        try:
            if now != self._entries:
                return False
        except Exception:  # entries that cannot be compared, such as larger tensors, are not the same ones
            return False
        return all(map(is_, [now[n][at] for n, at in self._places], self._objects))

    def alike(self) -> bool:
        """Whether every entry is what it was, or equal to it. If so, it is remembered as it is."""
        now = self._current()
        if list(map(len, now)) != list(map(len, self._entries)):
            return False
        if not all(all(map(_alike, held, known)) for held, known in zip(now, self._entries)):
            return False
        self._take()
        return True


def _equals_another(entry: Any) -> bool:
    """Whether something else may be equal to it: True is to 1, also in a tuple, and a tensor of one element may be."""
    return isinstance(entry, (*NUMBERS, tuple)) or (isinstance(entry, torch.Tensor) and entry.numel() == 1)


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, tuple) and type(one) is type(other) and len(one) == len(other):
        return all(map(_alike, one, other))
    return type(one) is type(other) and isinstance(one, CONSTANTS) and one == other


def watched_mappings(modules: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """Where modules and their parts keep what they are: attributes, parameters, buffers, parts, plain dicts."""
    found: list[dict[str, Any]] = []
    for module in dict.fromkeys(part for whole in modules for part in whole.modules()):
        held = vars(module)
        found += [held, *(held[kind] for kind in ("_parameters", "_buffers", "_modules") if held.get(kind))]
        found += [v for k, v in held.items() if type(v) is dict and v and not k.startswith("_")]
    return found


def watched_lists(modules: Iterable[nn.Module]) -> list[list[Any]]:
    """The lists among the attributes of modules."""
    parts = dict.fromkeys(part for whole in modules for part in whole.modules())
    return [value for part in parts for value in vars(part).values() if type(value) is list]


class Layout:
    """Remembers the type, device, sizes, strides and need of a gradient of tensors, in one call for all of them.

    free: the positions of tensors whose sizes and strides may change.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], free: frozenset[int] = frozenset()) -> None:
        self.holds: Callable[..., bool]
        """Whether other tensors, as many and each another one, are like these."""
        if TensorGuards is None:
            known = [_described(tensor, n in free) for n, tensor in enumerate(tensors)]
            self.holds = lambda *given: all(_described(t, n in free) == known[n] for n, t in enumerate(given))
            return
        sizes: list[list[Any]] = [[None] * t.dim() if n in free else list(t.shape) for n, t in enumerate(tensors)]
        strides: list[list[Any]] = [[None] * t.dim() if n in free else list(t.stride()) for n, t in enumerate(tensors)]
        self.holds = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def _described(tensor: torch.Tensor, is_free: bool) -> tuple[Any, ...]:
    layout = tensor.dim() if is_free else (tensor.shape, tensor.stride())
    return type(tensor), tensor.dtype, tensor.device, tensor.requires_grad, layout


def ambient() -> tuple[Any, ...]:
    """The modes of torch that change what is computed."""
    cpu, cuda = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        cpu and torch.get_autocast_dtype("cpu"),
        cuda and torch.get_autocast_dtype("cuda"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )
