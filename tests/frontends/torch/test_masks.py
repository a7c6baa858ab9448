"""A mask of constants that says nothing goes; any other mask stays, and everything is as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import bridge

Mask = Callable[[torch.Tensor], torch.Tensor]

LENGTH = 6


def seen_by_all(x: torch.Tensor) -> torch.Tensor:
    query = torch.arange(LENGTH) + 0
    return (query >= 0)[None, None, :, None].expand(x.shape[0], -1, LENGTH, LENGTH)


def before(x: torch.Tensor) -> torch.Tensor:
    place = torch.arange(LENGTH)
    return (place[:, None] >= place[None, :]) & torch.ones(LENGTH, LENGTH, dtype=torch.bool)


def near(x: torch.Tensor) -> torch.Tensor:
    place = torch.arange(LENGTH)
    return (place[:, None] - place[None, :]).le(1)


def changed(x: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask[:, 2:4] = x[0, 0, 0, 0] > 100
    return mask


def changed_by_a_view(x: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask[1:].t()[2].mul_(x[0, 0, 0, 0] > 100)
    return mask


MASKS: dict[str, tuple[Mask, tuple[bool, bool]]] = {
    "all": (seen_by_all, (False, False)),
    "before": (before, (False, True)),
    "no bias": (lambda x: torch.zeros(LENGTH, LENGTH), (False, False)),
    "minus infinity": (lambda x: torch.full((LENGTH, LENGTH), -torch.inf).triu(1), (False, True)),
    "near": (near, (True, False)),
    "a bias": (lambda x: torch.full((LENGTH, LENGTH), 2.0).triu(1), (True, False)),
    "of an input": (lambda x: (x[..., 0] > -9).unsqueeze(-2), (True, False)),
    "of a row": (lambda x: (x[..., :1] > 0.1).expand(-1, -1, -1, LENGTH), (True, False)),
    "changed in place": (changed, (True, False)),
    "changed by a view": (changed_by_a_view, (True, False)),
}
"""With each whether attention still has a mask, and whether it is causal."""


@pytest.mark.parametrize("name", MASKS)
def test_attention_is_eagers(name: str) -> None:
    make, expected = MASKS[name]
    told: list[tuple[bool, bool]] = []

    def attention(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, 2 * x, x.sin(), attn_mask=make(x))

    x = torch.randn(2, 3, LENGTH, 4, requires_grad=True)
    compiled = bridge.compile(attention, target="eager")
    results = [f(x) for f in (compiled, attention)]
    torch.testing.assert_close(*(torch.nan_to_num(result) for result in results))
    torch.testing.assert_close(*(torch.autograd.grad(r.nan_to_num().square().sum(), x)[0] for r in results))
    for node in bridge.inspect(compiled).joints[0].nodes:
        if node.target is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
            told.append((node.kwargs.get("attn_mask") is not None, len(node.args) > 4 and bool(node.args[4])))
    assert told == [expected]


@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_a_mask_lies_as_in_eager_where_attention_drops_out(dropped: float) -> None:
    """How it lies decides which way of attention draws."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, MASKS["of a row"][0](x), dropped)

    x, found = torch.randn(2, 3, LENGTH, 4, requires_grad=True), []
    compiled = bridge.compile(attention, target="eager")
    for one in (compiled, attention):
        torch.manual_seed(0)
        found.append(one(x).nan_to_num())
    torch.testing.assert_close(*found)
    (joint,) = bridge.inspect(compiled).joints
    made = [node for node in joint.nodes if node.target is torch.ops.aten.clone.default]
    assert any(node.meta["val"].dtype == torch.bool for node in made) is (dropped == 0)


def test_a_mask_of_a_symbolic_length_stays() -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    compiled = bridge.compile(attention, target="eager", dynamic=True)
    for length in (5, 7):
        x = torch.randn(2, 3, length, 4)
        torch.testing.assert_close(compiled(x), attention(x))
