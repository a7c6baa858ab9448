"""Products of vectors are kernels, forward and backward; other products are a library's."""

from __future__ import annotations

import pytest
import torch

import bridge


def callouts(x: torch.Tensor, y: torch.Tensor, tolerance: float = 1e-4) -> set[str]:
    """The ATen ops that a product and its gradients call, by phase, after both were compared with eager's."""
    torch._dynamo.reset()

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x.sin(), y)

    compiled = bridge.compile(product)
    given = [(x.clone().requires_grad_(), y.clone().requires_grad_()) for _ in range(2)]
    for function, (a, b) in zip((product, compiled), given, strict=True):
        function(a, b).float().square().sum().backward()
    torch.testing.assert_close(compiled(x, y), product(x, y), rtol=tolerance, atol=tolerance)
    for one, other in zip(*given, strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=tolerance, atol=tolerance)
    graphs = bridge.inspect(compiled).graphs
    return {f"{graph.graph.phase.value} {op}" for graph in graphs for call in graph.callouts for op in call.ops}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_a_column_and_a_row_and_the_other_way_round(dtype: torch.dtype) -> None:
    assert callouts(torch.randn(300, 1, 40, dtype=dtype), torch.randn(300, 40, 1, dtype=dtype)) == set()
    x, y = torch.randn(300, 40, 1, dtype=dtype), torch.randn(300, 1, 60, dtype=dtype)
    assert callouts(x, y) == {"backward aten.bmm.default"}  # of a matrix and a vector


def test_sums_of_narrow_types_are_kept_in_a_wider_one() -> None:
    """These stay products, whose kernels round once, as a library does."""
    x, y = torch.randn(300, 1, 400, dtype=torch.bfloat16), torch.randn(300, 400, 1, dtype=torch.bfloat16)
    assert callouts(x, y, 2e-2) == set()
    exactly = torch.bmm(x.sin().double(), y.double())
    torch.testing.assert_close(
        bridge.compile(lambda x, y: torch.bmm(x.sin(), y))(x, y).double(), exactly, rtol=2**-8, atol=1e-3
    )
