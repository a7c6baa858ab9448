"""The rows, by family. Importing this package fills the table."""

from bridge.backends.tvm.ops import comparison, creation, pointwise, reduction, unary, view

__all__ = ["comparison", "creation", "pointwise", "reduction", "unary", "view"]
