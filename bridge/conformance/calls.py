"""Real calls of one ATen overload, recorded while torch's own samples run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from bridge.conformance.samples import KEYWORDS, OWN, RELATED
from bridge.ir.trees import tree_map
from bridge.passes.decompose import decompositions

ENOUGH = 6
"""Calls that are tried for an overload."""

FEW_TYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16)
TYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
"""The types that samples are made in."""

SMALL = 20_000
"""Elements of the calls that are looked at, all tensors together."""


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

    @property
    def elements(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors)

    @property
    def type_name(self) -> str:
        """The type that the call is one in: its result's if an argument has it too, else its first float's."""
        made = [v for v in tree_flatten(self())[0] if isinstance(v, torch.Tensor)]
        given = [tensor.dtype for tensor in self.tensors]
        telling = [t.dtype for t in made[:1] if not given or t.dtype in given] + [
            d for d in given if d.is_floating_point
        ]
        return str((telling or given)[0]).removeprefix("torch.")

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
    return own_calls(op) + spread(recorded(op, FEW_TYPES))


@cache
def calls_by_type(op: OpOverload, of_each: int) -> dict[str, list[Call]]:
    """So many calls of an overload in each type that torch has samples in, by the type's name."""
    torch.manual_seed(0)
    found: dict[str, list[Call]] = {}
    for call in own_calls(op) + [c for c in recorded(op, TYPES) if c.elements < SMALL]:
        with suppress(RuntimeError):  # a call that needs its tensors where they lay when it was recorded
            found.setdefault(call.type_name, []).append(call)
    return {name: evenly(calls, of_each) for name, calls in found.items()}


def own_calls(op: OpOverload) -> list[Call]:
    """The calls that are written down for an overload."""
    return [Call(op, args, kwargs) for args in OWN.get(op, list)() for kwargs in KEYWORDS.get(op, [{}])]


def recorded(op: OpOverload, types: Sequence[torch.dtype]) -> list[Call]:
    """The calls that torch's samples in these types make."""
    names = RELATED.get(op, ())
    recorder = Recorder(op)
    for info in op_db:
        if info.name in names or (not names and op._schema.name.split("::")[1] in aliases(info)):
            for dtype in types:
                record(recorder, info, dtype)
    return list(recorder.calls.values())


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
    small = [c for c in calls if c.elements < SMALL]
    return small[:: max(1, len(small) // ENOUGH)][: ENOUGH + 2]


def evenly(calls: list[Call], count: int) -> list[Call]:
    """So many from all over the list, the first among them."""
    return calls[:: max(1, -(-len(calls) // count))][:count]
