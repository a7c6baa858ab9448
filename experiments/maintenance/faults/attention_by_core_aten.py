"""Core ATen's table takes attention's forward apart and leaves its backward whole, and the two do not fit.

Seen: gradients that are wrong by more than their size, without an error. Right: eager's gradients.
"""

import torch
from functorch.compile import aot_function, make_boxed_func
from torch.nn.functional import scaled_dot_product_attention


def gradient(function):
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 8, 16, requires_grad=True) for _ in range(3))
    function(query, key, value).square().sum().backward()
    return query.grad


compiled = aot_function(
    scaled_dot_product_attention,
    fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward),
    decompositions=torch.export.default_decompositions(),
)
right, found = gradient(scaled_dot_product_attention), gradient(compiled)
assert torch.allclose(right, found, atol=1e-4), f"largest difference {(right - found).abs().max():.3g}"
