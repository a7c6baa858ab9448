"""Dropout that drops nothing gives the very tensor that it is given, also where torch traces it as a copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import bridge


def written_through(x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    F.dropout(x, 0.5, False).add_(1)
    return x * 2


def written_to_the_input(x: torch.Tensor) -> torch.Tensor:
    kept = F.dropout(x, p=0.5, training=False)
    kept.mul_(3)
    return kept + x


@pytest.mark.parametrize("function", [written_through, written_to_the_input])
@pytest.mark.parametrize("target", ["eager", "tvm"])
def test_what_is_written_to_it_is_not_lost(function: Callable[..., torch.Tensor], target: str) -> None:
    mine, theirs = torch.ones(3), torch.ones(3)
    assert torch.equal(bridge.compile(function, target)(mine), function(theirs))
    assert torch.equal(mine, theirs)
