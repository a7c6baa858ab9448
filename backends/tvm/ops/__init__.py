"""The rows, by family. Importing this package fills the table."""

from bridge.backends.tvm.ops import (
    activation,
    attention,
    comparison,
    convolution,
    creation,
    indexing,
    loss,
    matmul,
    normalisation,
    pointwise,
    pooling,
    reduction,
    scatter,
    sorting,
    unary,
    view,
)

__all__ = [
    "activation",
    "attention",
    "comparison",
    "convolution",
    "creation",
    "indexing",
    "loss",
    "matmul",
    "normalisation",
    "pointwise",
    "pooling",
    "reduction",
    "scatter",
    "sorting",
    "unary",
    "view",
]
