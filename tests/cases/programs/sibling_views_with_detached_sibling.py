"""Outputs that are slices of one intermediate plus its detach(): the differentiable slices lose their grad_fn and
inputs get no gradient.

Reported: pytorch/pytorch#194479.
Right: first two outputs require grad, third does not; x.grad = -sin(x) everywhere (ones tangents).
About: AOTAutograd semantics.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Wrap


def f(x):
    c = x.cos()
    return c[:3], c[3:], c.detach()


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(4)
    return f, (torch.randn(7, requires_grad=True),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    g, (x,) = make()
    a, b, c = wrap(g)(x)
    flags = torch.tensor([a.requires_grad, b.requires_grad, c.requires_grad])
    (a.sum() + b.sum()).backward()
    return {"flags": flags, "g": x.grad, "x": x.detach()}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["flags"].tolist() == [True, True, False]
    assert torch.allclose(result["g"], -result["x"].sin())
