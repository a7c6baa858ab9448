"""The loss of classes as simpler ops gives what ATen gives, its gradients too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from bridge.passes import logits
from bridge.passes.decompose import decompositions

aten = torch.ops.aten


@contextmanager
def taken_apart() -> Iterator[None]:
    """On the CPU as on a GPU."""
    with mock.patch.object(logits, "stays_whole", return_value=False):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1, 50, 1000])
def test_a_log_softmax_and_its_gradient(dtype: torch.dtype, scale: float) -> None:
    x, grad = (scale * torch.randn(5, 7)).to(dtype), torch.randn(5, 7).to(dtype)
    with taken_apart():
        y = logits.log_softmax(x, 1, False)
        torch.testing.assert_close(y, F.log_softmax(x.double(), 1).to(dtype))
        expected = aten._log_softmax_backward_data.default(grad.double(), y.double(), 1, torch.float64).to(dtype)
        torch.testing.assert_close(logits.log_softmax_backward(grad, y, 1, dtype), expected)


def test_a_log_softmax_of_16_bits_in_32() -> None:
    x = torch.randn(5, 7).bfloat16()
    with taken_apart():
        torch.testing.assert_close(logits.log_softmax(x, 1, True), F.log_softmax(x.double(), 1).float())


@pytest.mark.parametrize("ignored", [-100, 3])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_a_loss_and_its_gradient(reduction: int, ignored: int) -> None:
    x, target = torch.randn(6, 7), torch.tensor([0, 6, 3, 2, 3, 1])
    with taken_apart():
        mine, total = logits.nll_loss(x, target, None, reduction, ignored)
        theirs, own_total = aten.nll_loss_forward.default(x, target, None, reduction, ignored)
        torch.testing.assert_close((mine, total), (theirs, own_total))
        more = (torch.randn_like(mine), x, target, None, reduction, ignored, total)
        torch.testing.assert_close(logits.nll_loss_backward(*more), aten.nll_loss_backward.default(*more))


def test_nothing_of_them_is_left_on_a_gpu_and_all_on_a_cpu() -> None:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target)

    for device, left in (("cuda", 0), ("cpu", 2)):
        with FakeTensorMode():
            given = torch.empty(6, 7, device=device), torch.empty(6, dtype=torch.int64, device=device)
            module = make_fx(loss, decomposition_table=dict(decompositions()))(*given)
        assert sum(node.target in logits.LOGITS for node in module.graph.nodes) == left
