"""What only unused results depend on gets a gradient of zeros, where eager gives none.

Seen: b.grad is a zero. Right: None, which an optimizer skips, while it decays a parameter with a zero.
"""

import torch


@torch.compile(backend="aot_eager")
def function(a, b):
    return a.sin(), b.sin()


a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
function(a, b)[0].sum().backward()
assert b.grad is None, f"b.grad is {b.grad}"
