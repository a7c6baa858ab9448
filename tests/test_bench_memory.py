"""The peak of a step's memory is the same however often it is measured."""

from __future__ import annotations

import torch
from torch import nn

from bridge.bench.memory import peak_bytes


def test_what_a_step_leaves_is_not_counted_when_it_goes() -> None:
    layer, x = nn.Linear(256, 256), torch.randn(8, 256)

    def step() -> None:
        layer.zero_grad()
        layer(x).square().sum().backward()

    first, *others = [peak_bytes(step) for _ in range(3)]
    assert first >= 4 * 256 * 256
    assert others == [first, first]
