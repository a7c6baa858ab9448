"""A recurrent module that is traced loses the dropout between its layers.

Seen: with dropout=1.0 the second layer still sees the first. Right: it sees zeros, as in eager.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.GRU(4, 4, num_layers=2, dropout=1.0)
x = torch.randn(3, 2, 4)
right = model(x)[0]
with torch._dynamo.config.patch(allow_rnn=True):
    found = torch.compile(model, backend="aot_eager")(x)[0]
assert torch.allclose(right, found, atol=1e-5), f"largest difference {(right - found).abs().max():.3g}"
