"""Which products are called from a library, and which are not worth the call."""

from __future__ import annotations

import pytest
import torch

import bridge

BATCH = 600
"""So many products that together they are no small one."""


@pytest.mark.parametrize(
    ("a", "b", "called"),
    [
        ((BATCH, 1, 40), (BATCH, 40, 1), 0),
        ((BATCH, 9, 1), (BATCH, 1, 17), 0),
        ((BATCH, 1, 1), (BATCH, 1, 40), 0),
        ((BATCH, 3, 40), (BATCH, 40, 2), 1),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_of_vectors_are_generated(a: tuple[int, ...], b: tuple[int, ...], called: int, dynamic: bool) -> None:
    """Each of their elements is read once, so that a library has nothing to gain: also where sizes are symbols."""
    x, y = torch.randn(a, requires_grad=True), torch.randn(b, requires_grad=True)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(y, 0)
    compiled = bridge.compile(torch.bmm)
    result = compiled(x, y)
    torch.testing.assert_close(result, torch.bmm(x, y), rtol=1e-5, atol=1e-5)
    result.sum().backward()
    ways = compiled.placement["forward"]
    assert (ways["library"], ways["fallback"]) == (called, 0)
    grads = x.grad, y.grad
    x.grad = y.grad = None
    torch.bmm(x, y).sum().backward()
    for mine, theirs in zip(grads, (x.grad, y.grad), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
