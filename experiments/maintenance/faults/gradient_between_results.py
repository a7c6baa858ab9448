"""The gradient of one result of a compiled call by another is lost.

Seen: None, or an error. Right: what eager gives, or an error that says so.
"""

import torch


@torch.compile(backend="aot_eager")
def function(x):
    hidden = x * 2
    return hidden, hidden.square()


hidden, result = function(torch.ones(3, requires_grad=True))
(found,) = torch.autograd.grad(result.sum(), hidden, allow_unused=True)
assert found is not None, "the gradient is None"
assert torch.equal(found, 2 * hidden)
