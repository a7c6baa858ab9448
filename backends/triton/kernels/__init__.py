"""Every family of kernels. Importing this fills the table, and imports Triton."""

from bridge.backends.triton.kernels import attention, matmul, norm, optimizer, scan, scatter, softmax, sorting

__all__ = ["attention", "matmul", "norm", "optimizer", "scan", "scatter", "softmax", "sorting"]
