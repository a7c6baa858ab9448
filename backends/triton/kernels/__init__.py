"""Every family of kernels. Importing this fills the table, and imports Triton."""

from bridge.backends.triton.kernels import attention, matmul, scan, scatter, sorting

__all__ = ["attention", "matmul", "scan", "scatter", "sorting"]
