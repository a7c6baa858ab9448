"""Products of groups of rows, an op that another library registers."""

from __future__ import annotations

import pytest
import torch

import bridge


@pytest.mark.parametrize("ends", [[3, 3, 7, 10], [0, 4, 4, 8], [10, 10, 10, 10], [0, 0, 0, 0]], ids=str)
def test_groups_of_rows(ends: list[int]) -> None:
    pytest.importorskip("transformers.integrations.moe")
    offs = torch.tensor(ends, dtype=torch.int32)

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.transformers.grouped_mm_fallback(x, w, offs).tanh()

    given = torch.randn(10, 5), torch.randn(4, 5, 17)
    results = []
    compiled = bridge.compile(product)
    for function in (product, compiled):
        x, w = (t.clone().requires_grad_() for t in given)
        y = function(x, w)
        y.backward(torch.linspace(-1, 1, y.numel()).view_as(y))
        results.append((y, x.grad, w.grad))
    for mine, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(ways["fallback"] == 0 < ways["generated"] for ways in compiled.placement.values())


def test_large_groups_are_products_of_the_library() -> None:
    pytest.importorskip("transformers.integrations.moe")
    offs = torch.tensor([40, 40, 100, 128], dtype=torch.int32)

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.transformers.grouped_mm_fallback(x, w.transpose(1, 2), offs).tanh().sum()

    given = torch.randn(128, 64), torch.randn(4, 256, 64)
    compiled = bridge.compile(product)
    results = []
    for function in (product, compiled):
        x, w = (t.clone().requires_grad_() for t in given)
        function(x, w).backward()
        results.append((x.grad, w.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    declared = [c for graph in bridge.inspect(compiled).graphs for c in graph.callouts]
    assert sorted(op for c in declared for op in c.ops) == [
        "transformers.grouped_mm_fallback.default",
        "transformers.grouped_mm_fallback_backward.default",
    ]
    assert all(ways["fallback"] == 0 for ways in compiled.placement.values())
    x, w = (t.clone().requires_grad_() for t in given)
    audit = bridge.audit(lambda: compiled(x, w).backward())
    assert audit.ok, audit
