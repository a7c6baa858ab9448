"""Kernels read memory as it is, so what torch keeps beside the memory is written into it first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import bridge


def both(function: Callable[..., torch.Tensor], tensor: torch.Tensor, tangent: torch.Tensor | None = None) -> None:
    """The result, and the gradient where there is a tangent, are eager's, and a kernel was called."""
    compiled = bridge.compile(function)
    found, wanted = [], []
    for call, results in ((compiled, found), (function, wanted)):
        x = tensor.detach().requires_grad_(tangent is not None)
        results.append(call(x))
        if tangent is not None:
            results += torch.autograd.grad(results[0], x, tangent)
    torch.testing.assert_close(found, wanted)
    assert all(graph.runs[0] == 1 for graph in bridge.inspect(compiled).graphs)
    assert any(graph.kernel_calls > 0 for graph in bridge.inspect(compiled).graphs)


def negative(*shape: int) -> torch.Tensor:
    """Half of a conjugate: its sign is a flag of the tensor, not in its memory."""
    tensor = torch.randn(shape, dtype=torch.complex64).conj().imag
    assert tensor.is_neg()
    return tensor


NEGATIVE = {
    "strided": lambda: negative(3, 5),
    "compact": lambda: torch.ops.aten._neg_view(torch.randn(3, 5)),
    "expanded": lambda: negative(5).expand(3, 5),
    "transposed": lambda: negative(5, 3).t(),
    "one element": lambda: negative(1),
    "scalar": lambda: negative(),
}


@pytest.mark.parametrize("make", NEGATIVE.values(), ids=NEGATIVE)
def test_negative_inputs_and_tangents(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    both(lambda x: x * 2 + x.exp(), tensor)
    both(lambda x: x.tanh() * 3, torch.randn(tensor.shape), tensor)


def test_a_negative_view_inside() -> None:
    z = torch.randn(3, 5, dtype=torch.complex64)
    both(lambda x: x.conj().imag * 2 + x.conj().imag.exp(), z)
    both(lambda x: x.conj().imag.tanh() * 2, z, torch.randn(3, 5))


@pytest.mark.parametrize("shape", [(3, 5), (1,), ()])
def test_tangents_of_zeros_without_memory(shape: tuple[int, ...]) -> None:
    both(lambda x: x.tanh() * 3, torch.randn(shape), torch.ops.aten._efficientzerotensor(shape))
