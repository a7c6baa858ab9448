"""A parameter-like leaf is nudged in place under no_grad; compilers that hoist the write-back out of no_grad raise a
leaf-mutation error.

Reported: pytorch/pytorch#90844.
Right: no error; the leaf holds old value + 0.5 afterwards; gradient of the later use is d(sum w*x)/dx = w.
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Wrap

W = torch.tensor([1.0, -2.0, 3.0, 0.25])


def step(x):
    with torch.no_grad():
        x.add_(0.5)
    return x * W


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(1)
    return step, (torch.randn(4).requires_grad_(),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    f, (x,) = make()
    before = x.detach().clone()
    y = wrap(f)(x)
    y.sum().backward()
    return {"delta": x.detach() - before, "y": y.detach(), "g": x.grad}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert torch.allclose(result["delta"], torch.full((4,), 0.5))
    assert torch.equal(result["g"], W)
