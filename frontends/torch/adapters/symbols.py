"""Fake tensors, and numbers that are not known while a graph is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv


class Symbols:
    """A fake mode whose numbers are symbols: those that it is told of, and those that are read out of tensors."""

    def __init__(self) -> None:
        self._env = ShapeEnv(allow_scalar_outputs=True)
        self.mode = FakeTensorMode(shape_env=self._env)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake tensor of the same type, sizes, strides and device, in memory of its own."""
        with self.mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    def number(self, value: float, name: str) -> Any:
        """A symbol for a float or an int, which has this value as it is looked at."""
        source = ConstantSource(name)
        symbol = self._env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        make = self._env.create_symfloatnode if isinstance(value, float) else self._env.create_symintnode
        return make(symbol, hint=value, source=source)

    @property
    def assumed(self) -> Sequence[Any]:
        """What was found true of the symbols, as sympy expressions, where Python took a branch by it."""
        return [guard.expr for guard in self._env.guards]
