"""Clipping of gradients, as a training step of `compile_step` does it before the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Clip:
    """How gradients are clipped: by their norm taken together, or each value by itself, or not at all."""

    norm: float | None
    value: float | None

    @property
    def function(self) -> Callable[[list[torch.Tensor]], object] | None:
        """What does so to the gradients of some parameters."""
        if self.norm is not None:
            limit = self.norm
            return lambda parameters: nn.utils.clip_grad_norm_(parameters, limit, foreach=False)
        if self.value is not None:
            bound = self.value
            return lambda parameters: nn.utils.clip_grad_value_(parameters, bound, foreach=False)
        return None
