"""Notice that a module's hooks changed. Dynamo's own guards on them cost more at each call than a small model does."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

from torch import nn

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Where a module keeps the hooks that take part in its call."""

MOST_SETS = 8
"""How many different sets of hooks are kept compiled."""

Hooks = tuple[tuple[int, str, tuple[Any, ...]], ...]


def watched(module: nn.Module, start: Callable[[], Callable[..., Any]], count: Callable[[], int]) -> Callable[..., Any]:
    """The module compiled by `start()`, once for each set of hooks that it and its parts are called with.

    That no hook was registered is seen in a count of them; that none was removed, in the sizes of the few mappings that
    hold one. count: how many hooks have been registered, on whatever.
    """
    compiled: dict[Hooks, Callable[..., Any]] = {}
    registered = -1
    present: list[tuple[Sized, int]] = []
    current: Callable[..., Any]

    def call(*args: Any, **kwargs: Any) -> Any:
        if registered != count() or any(len(hooks) != number for hooks, number in present):
            look()
        return current(*args, **kwargs)

    def look() -> None:
        nonlocal registered, present, current
        registered = count()
        hooks, present = hooks_of(module)
        if hooks not in compiled:
            if len(compiled) == MOST_SETS:
                compiled.pop(next(iter(compiled)))
            compiled[hooks] = start()
        current = compiled[hooks]

    return call


def hooks_of(module: nn.Module) -> tuple[Hooks, list[tuple[Sized, int]]]:
    """All hooks of a module and its parts, and the mappings that hold them with their sizes."""
    hooks, present = [], []
    for position, part in enumerate(module.modules()):
        for kind in HOOKS:
            held = part.__dict__.get(kind)
            if held:
                hooks.append((position, kind, tuple(held.values())))
                present.append((held, len(held)))
    return tuple(hooks), present
