"""A step in float64 to hold the same step in float32 against: the same random numbers, and float64 throughout."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

aten = torch.ops.aten

WIDER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


class Draws(TorchDispatchMode):
    """Keeps the random numbers that a run draws, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is aten.native_dropout.default:
            self.kept.append(result[1].clone())
        elif func is aten._scaled_dot_product_efficient_attention.default:
            self.kept += attention_masks(*_bound(func, args, kwargs), *result[2:])
        elif draws(func):
            self.kept.append(result.clone())
        return result


class Replayed(TorchDispatchMode):
    """Gives the random numbers of another run: in float64 torch would draw others from the same seed.

    It also multiplies grouped matrices, since torch does not in float64. And attention, which is one kernel of a GPU's
    in float32 and draws its dropout inside of it, is products, a softmax and a dropout in float64.
    """

    def __init__(self, kept: list[torch.Tensor]) -> None:
        super().__init__()
        self._left = iter(kept)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._grouped_mm.default:
            return grouped_product(*args, **(kwargs or {}))
        if func is aten.native_dropout.default:
            return dropped(next(self._left), *args)
        result = func(*args, **(kwargs or {}))
        if draws(func):
            kept = next(self._left)
            if kept.shape != result.shape:
                raise ValueError(f"{func}: {tuple(result.shape)} where {tuple(kept.shape)} was drawn before")
            result.copy_(kept)
        return result


class _Wider(TorchFunctionMode):
    """Where the program asks for float32 it gets float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args, kwargs = tree_map(_wider_type, (args, kwargs or {}))
        return func(*args, **kwargs)


@contextlib.contextmanager
def in_float64(kept: list[torch.Tensor]) -> Iterator[None]:
    """What runs herein computes in float64 and draws the random numbers of `kept`."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Replayed(kept), _Wider():
            yield
    finally:
        torch.set_default_dtype(default)


def widened(value: Any) -> Any:
    """The tensors of nested containers in float64. A tensor of which a gradient is wanted stays one."""
    return tree_map(_wider_tensor, value)


def dropped(kept: torch.Tensor, x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """`native_dropout`, as a GPU has it, by the mask of another run."""
    if train is False:
        return x, kept
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


def attention_masks(
    query: torch.Tensor, key: torch.Tensor, p: float, seed: torch.Tensor, offset: torch.Tensor
) -> list[torch.Tensor]:
    """What a GPU's attention has kept of its probabilities, if it drops any: drawn from a seed that it tells."""
    if p == 0:
        return []
    drawn = query.new_empty((*query.shape[:-1], key.shape[-2]), dtype=torch.float32)
    aten._fill_mem_eff_dropout_mask_(drawn, p, int(seed), int(offset))
    return [drawn > p]


def _bound(func: Any, args: Any, kwargs: Any) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Queries, keys and the share that is dropped, of a call of attention."""
    names = [argument.name for argument in func._schema.arguments]
    given = {"dropout_p": 0.0, **dict(zip(names, args)), **(kwargs or {})}
    return given["query"], given["key"], given["dropout_p"]


def grouped_product(x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor | None = None, *_: Any) -> torch.Tensor:
    """`torch._grouped_mm`: groups of rows of x by a matrix each, or groups of columns of x by those rows of y."""
    if ends is None:
        return x @ y
    bounds = [0, *ends.tolist()]
    groups = [slice(begin, end) for begin, end in itertools.pairwise(bounds)]
    if x.dim() == 3:
        return torch.cat([x[number] @ y[:, group] for number, group in enumerate(groups)], dim=1)
    if y.dim() == 3:
        return torch.cat([x[group] @ y[number] for number, group in enumerate(groups)])
    return torch.stack([x[:, group] @ y[group] for group in groups])


def draws(func: Any) -> bool:
    """Whether an overload gives random numbers and nothing else."""
    return torch.Tag.nondeterministic_seeded in func.tags and len(func._schema.returns) == 1


def _wider_type(value: Any) -> Any:
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def _wider_tensor(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype not in WIDER:
        return value
    return value.detach().to(WIDER[value.dtype]).requires_grad_(value.requires_grad)
