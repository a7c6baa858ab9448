"""Recurrent modules with dropout between their layers are captured as they run in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import bridge


@pytest.mark.parametrize(
    ("kind", "bidirectional", "batch_first"), [(nn.GRU, False, True), (nn.LSTM, False, False), (nn.RNN, True, True)]
)
def test_dropout_between_layers(kind: Callable[..., nn.RNNBase], bidirectional: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    net = kind(4, 5, num_layers=3, dropout=0.4, bidirectional=bidirectional, batch_first=batch_first)
    x = torch.randn(2, 2, 4)
    compiled = bridge.compile(net, target="eager")
    torch.manual_seed(1)
    expected, _ = net(x)
    expected.sum().backward()
    gradients = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    assert gradients
    after = torch.get_rng_state()
    net.zero_grad()
    torch.manual_seed(1)
    found, _ = compiled(x)
    found.sum().backward()
    assert bridge.inspect(compiled).graphs
    assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(found, expected)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name])


def test_training_mode_decides_on_dropout() -> None:
    net = nn.GRU(4, 5, num_layers=2, dropout=0.4).eval()
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(bridge.compile(net, target="eager")(x)[0], net(x)[0])
