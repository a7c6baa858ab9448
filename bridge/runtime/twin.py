"""What `bridge.compile` gives back: a module that shares the state of the user's, or a callable for a function."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from bridge.errors import NotCompilable
from bridge.options import Options
from bridge.runtime.compiled import Compilation

OFFERED = ("ledger", "placement", "explain")
"""Attributes of the compilation that a compiled object offers, where the user's own object has none of that name."""


@dataclass(frozen=True, eq=False)
class State:
    """What a compiled object holds beside the user's own.

    subject: the user's module or function. call: it, compiled.
    rebuild: (subject, options) → a compiled object; a function of a module's top level, so that it can be pickled.
    """

    subject: Any
    call: Callable[..., Any]
    compilation: Compilation
    rebuild: Callable[[Any, Options], Any]

    def again(self, subject: Any) -> Any:
        """Another module or function, compiled anew with the same options."""
        return self.rebuild(subject, self.compilation.options)


class Twin:
    """The part of a compiled module that is ours. The rest is the user's class and the user's `__dict__`.

    Called, it runs the compiled program. Its `__class__` is the user's class, and what is set is set on the user's
    module: so utilities that swap a module's class find and change the class of the module that is captured.
    """

    __slots__ = ()
    _bridge: State

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """`type(compiled)(…)` makes another module of the user's class, as `type(module)(…)` does."""
        users_class = cls.__mro__[cls.__mro__.index(Twin) + 1]
        return users_class(*args, **kwargs)

    def __init_subclass__(cls) -> None:
        """The user's class learns of its subclasses as it likes; this one is none of its business."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return type(self._bridge.subject)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._bridge.call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        subject = self._bridge.subject
        try:
            return getattr(subject, name)
        except AttributeError:
            if name in OFFERED:
                return getattr(self._bridge.compilation, name)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._bridge.subject, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._bridge.subject, name)

    def __copy__(self) -> Any:
        return self._bridge.again(copy.copy(self._bridge.subject))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._bridge.again(copy.deepcopy(self._bridge.subject, memo))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self._bridge.rebuild, (self._bridge.subject, self._bridge.compilation.options)


@functools.cache
def _twin_class(base: type[nn.Module]) -> type:
    body = {
        "__slots__": ("_bridge",),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    make: Any = type(base)
    return make(base.__name__, (Twin, base), body)


def twin_of(state: State) -> Any:
    """A compiled module for `state.subject`: an instance of its class, with its very `__dict__`."""
    kind = _twin_class(type(state.subject))
    twin = object.__new__(kind)
    kind._bridge.__set__(twin, state)  # type: ignore[attr-defined]
    object.__setattr__(twin, "__dict__", state.subject.__dict__)
    return twin


class CompiledFunction:
    """A compiled function, with the function's own name, signature, documentation and attributes."""

    def __init__(self, state: State) -> None:
        functools.update_wrapper(self, state.subject)
        self._bridge = state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._bridge.call(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name in OFFERED:
            return getattr(self._bridge.compilation, name)
        raise AttributeError(f"{self!r} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<compiled {self.__dict__['_bridge'].subject!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._bridge.rebuild, (self._bridge.subject, self._bridge.compilation.options)


class Step:
    """What a compiled training step has of a compiled object. Its subject is the user's module."""

    _bridge: State

    def __getattr__(self, name: str) -> Any:
        if name in OFFERED:
            return getattr(self._bridge.compilation, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def state_of(compiled: Any) -> State:
    """The state of a compiled object. Raises NotCompilable for anything else."""
    if isinstance(compiled, CompiledFunction | Step) or issubclass(type(compiled), Twin):
        return compiled._bridge
    raise NotCompilable(f"{type(compiled).__name__} is not compiled: give what bridge.compile returned")
