"""A training LSTM that is traced on a CPU cannot be split into forward and backward.

Seen: an error in AOTAutograd: a saved value of oneDNN's op is no tensor. Right: it trains.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.LSTM(4, 4)
x = torch.randn(3, 2, 4)
model(x)[0].sum().backward()
right = model.weight_ih_l0.grad.clone()
model.zero_grad()
with torch._dynamo.config.patch(allow_rnn=True):
    torch.compile(model, backend="aot_eager")(x)[0].sum().backward()
assert torch.allclose(right, model.weight_ih_l0.grad, atol=1e-5)
