"""Random tensors of a symbolic size cannot be traced where the call names a generator, even None.

Seen: a RuntimeError, "SymIntArrayRef expected to contain only concrete integers". Right: as without the argument.
"""

import torch


@torch.compile(backend="eager", fullgraph=True, dynamic=True)
def function(x):
    return torch.randn(x.shape, generator=None) + x


assert function(torch.zeros(5, 3)).shape == (5, 3)
