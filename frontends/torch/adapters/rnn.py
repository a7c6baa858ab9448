"""Recurrent modules of several layers, with the dropout between layers that torch's own decomposition loses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decompositions


@contextmanager
def dropout_between_layers() -> Iterator[None]:
    """While a graph is traced: `nn.LSTM`, `nn.GRU` and `nn.RNN` drop out as they do in eager.

    torch writes these modules out layer by layer in `_rnn_helper`, which sets the dropout to nought for every layer.
    """
    own = decompositions._rnn_helper
    decompositions._rnn_helper = _layer_by_layer(own)
    try:
        yield
    finally:
        decompositions._rnn_helper = own


def _layer_by_layer(one_layer: Callable[..., Any]) -> Callable[..., Any]:
    """The same in place of `_rnn_helper`: torch's own for each layer alone, and dropout between them."""

    def layers(
        input: torch.Tensor,
        hidden: Sequence[Any],
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        layer_fn: Callable[..., Any],
    ) -> tuple[torch.Tensor, list[Any]]:
        directions = 2 if bidirectional else 1
        input = input.transpose(0, 1) if batch_first else input
        finals: list[Any] = []
        for layer in range(num_layers):
            own = slice(layer * directions, (layer + 1) * directions)
            input, last = one_layer(
                input, hidden[own], params[own], has_biases, 1, 0.0, train, bidirectional, False, layer_fn
            )
            finals += last
            if dropout != 0 and train and layer < num_layers - 1:
                input = torch.dropout(input, dropout, train=True)
        return (input.transpose(0, 1) if batch_first else input), finals

    return layers
