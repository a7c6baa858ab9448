"""Inputs of a recording are copied to where it reads them, whatever their types and strides."""

from __future__ import annotations

import pytest
import torch

from bridge.backends.tvm.moving import Copying

SAMPLES = {
    "several types": lambda: [torch.randn(3, 4), torch.arange(5), torch.ones(2, 2, dtype=torch.bool), torch.ones(())],
    "one type": lambda: [torch.randn(3, 4), torch.randn(7)],
    "negated": lambda: [torch.imag(torch.randn(3, 2, dtype=torch.complex64).conj()), torch.randn(4), torch.randn(4)],
    "strided": lambda: [torch.randn(4, 3).t(), torch.randn(4, 8)[:, ::2], torch.randn(4), torch.randn(6)],
    "complex": lambda: [torch.randn(3, dtype=torch.complex64), torch.randn(3).half(), torch.arange(3)],
    "empty": lambda: [torch.randn(0, 3), torch.randn(3), torch.randn(2, 3)],
    "zeros without memory": lambda: [torch.ops.aten._efficientzerotensor([3]), torch.randn(4), torch.ones(2).half()],
    "none": lambda: [],
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_copying(name: str) -> None:
    first, second = SAMPLES[name](), SAMPLES[name]()
    copies = {at: one.detach().clone() for at, one in enumerate(first)}
    Copying(copies)(second)
    torch.testing.assert_close(list(copies.values()), second, rtol=0, atol=0, check_stride=False)
