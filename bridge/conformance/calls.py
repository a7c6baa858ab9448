"""Real calls of one ATen overload, recorded while torch's own samples run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from bridge.conformance.samples import KEYWORDS, OWN, RELATED
from bridge.passes.decompose import decompositions

ENOUGH = 6
"""Calls that are tried for an overload."""


@dataclass(frozen=True)
class Call:
    """A call of an overload with real tensors."""

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """Eager's results."""
        return self.op(*self.args, **self.kwargs)

    def mapped(self, how: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        """The same call of other tensors."""
        args, kwargs = tree_map(lambda v: how(v) if isinstance(v, torch.Tensor) else v, (self.args, self.kwargs))
        return Call(self.op, args, kwargs)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [v for v in tree_flatten((self.args, self.kwargs))[0] if isinstance(v, torch.Tensor)]

    def __str__(self) -> str:
        def said(v: Any) -> str:
            return f"{str(v.dtype)[6:]}{list(v.shape)}" if isinstance(v, torch.Tensor) else repr(v)

        parts = [str(tree_map(said, a)).replace("'", "") for a in self.args]
        return f"{self.op}({', '.join(parts + [f'{k}={tree_map(said, v)}' for k, v in self.kwargs.items()])})"


class Recorder(TorchDispatchMode):
    """Keeps the calls of one overload, also those that other ops are decomposed into."""

    def __init__(self, wanted: OpOverload) -> None:
        super().__init__()
        self.wanted = wanted
        self.calls: dict[str, Call] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is self.wanted:
            call = Call(func, args, kwargs).mapped(lambda t: t.detach().clone())
            self.calls.setdefault(str(call), call)
        elif func in decompositions():
            with self:
                made = decompositions()[func](*args, **kwargs)
            if made is not NotImplemented:
                return made
        return func(*args, **kwargs)


@cache
def calls_of(op: OpOverload) -> list[Call]:
    """A few calls of an overload: its own samples, and those of the ops that it is related to or named like."""
    torch.manual_seed(0)
    own = [Call(op, args, kwargs) for args in OWN.get(op, list)() for kwargs in KEYWORDS.get(op, [{}])]
    names = RELATED.get(op, ())
    recorder = Recorder(op)
    for info in op_db:
        if info.name in names or (not names and op._schema.name.split("::")[1] in aliases(info)):
            for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16):
                record(recorder, info, dtype)
    return own + spread(list(recorder.calls.values()))


def aliases(info: Any) -> tuple[str, ...]:
    short = info.name.split(".")[-1]
    return (info.name, info.aten_name, short, f"_{short}")


def record(recorder: Recorder, info: Any, dtype: torch.dtype) -> None:
    """Run a few samples in one type. A sample that torch itself does not take is no sample."""
    if dtype not in info.supported_dtypes("cpu"):
        return
    known = len(recorder.calls)
    differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    for sample in first(12, info.sample_inputs("cpu", dtype, requires_grad=differentiable)):
        with suppress(RuntimeError, ValueError, TypeError, NotImplementedError), recorder:
            made = info(sample.input, *sample.args, **sample.kwargs)
            results = [r for r in tree_flatten(made)[0] if isinstance(r, torch.Tensor) and r.requires_grad]
            if results:
                torch.autograd.backward(results, [torch.randn_like(r) for r in results])
        if len(recorder.calls) >= known + 3:
            return


def first(count: int, samples: Iterator[Any]) -> Iterator[Any]:
    for _, sample in zip(range(count), samples, strict=False):
        yield sample


def spread(calls: list[Call]) -> list[Call]:
    """A few calls from all over the list, no large ones."""
    small = [c for c in calls if sum(t.numel() for t in c.tensors) < 20_000]
    step = max(1, len(small) // ENOUGH)
    return small[::step][: ENOUGH + 2]
