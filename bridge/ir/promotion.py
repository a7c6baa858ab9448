"""Torch's rules for the types of element-wise ops: in which one is computed, and which the result has.

For real numbers: no kernel holds a complex one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from enum import Enum
from typing import Any

import torch


class Promote(Enum):
    """What an op makes of the type that its arguments have in common.

    DEFAULT: the result has it; 16-bit floats are computed in float32. NO_OPMATH: they are not.
    INT_TO_FLOAT: integers and bools become floats of the default type. ALWAYS_BOOL: the result is a bool.
    """

    DEFAULT = "default"
    NO_OPMATH = "no opmath"
    INT_TO_FLOAT = "int to float"
    ALWAYS_BOOL = "always bool"


_WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


def computation_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which torch computes with elements of a type."""
    return _WIDER.get(dtype, dtype)


def element_types(arguments: Iterable[Any], rule: Promote) -> tuple[torch.dtype, torch.dtype]:
    """The type to compute in and that of the result, for tensors and numbers, symbolic ones among them."""
    common = _common(list(arguments))
    if rule is Promote.INT_TO_FLOAT and not common.is_floating_point:
        common = torch.get_default_dtype()
    computation = common if rule is Promote.NO_OPMATH else computation_type(common)
    return computation, torch.bool if rule is Promote.ALWAYS_BOOL else common


def _common(arguments: list[Any]) -> torch.dtype:
    """The type of the highest kind. In it, tensors with dimensions count first, then 0-d ones, then numbers."""
    highest = max(_kind(argument) for argument in arguments)
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor) and _kind(argument) == highest]
    decisive = [tensor for tensor in tensors if tensor.dim()] or tensors
    if decisive:
        return functools.reduce(torch.promote_types, (tensor.dtype for tensor in decisive))
    return (torch.bool, torch.int64, torch.get_default_dtype())[highest]


def _kind(argument: Any) -> int:
    """0 for a bool, 1 for an integer, 2 for a float."""
    if isinstance(argument, torch.Tensor):
        return 2 if argument.dtype.is_floating_point else int(argument.dtype != torch.bool)
    if isinstance(argument, bool | torch.SymBool):
        return 0
    return 1 if isinstance(argument, int | torch.SymInt) else 2
