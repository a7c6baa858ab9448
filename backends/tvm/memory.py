"""Torch's memory as programs take it, without TVM, which a program that was found in the cache does not load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

empty_strided: Any = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", torch.empty_strided)  # type: ignore[attr-defined]
"""Fresh memory of a size, strides and type on the CPU. torch's own quick way, where this torch has it."""

empty_strided_cuda: Any = getattr(
    torch._C._dynamo.guards,  # type: ignore[attr-defined]
    "_empty_strided_cuda",
    lambda size, strides, dtype: torch.empty_strided(size, strides, dtype=dtype, device="cuda"),
)
"""The same on the current GPU."""


def _reinterpreted(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


reinterpret: Any = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", _reinterpreted)  # type: ignore[attr-defined]
"""A tensor's memory in another shape: (tensor, size, stride, elements from its first). torch's own quick way, again."""

holders: Any = getattr(torch._C, "_storage_Use_Count", None)
"""How many tensors and others hold a storage, by its address; None where this torch does not tell."""

clear_workspaces: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)
"""Give back the memory that cuBLAS keeps between its calls, which in a recording would be kept for it alone."""

keeps_graph: Any = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)  # type: ignore[attr-defined]
"""Whether the backward pass that runs may run again, so that it has to leave what was saved for it as it is."""


def storage_of(tensor: torch.Tensor) -> int:
    """The storage of a tensor, as torch counts who holds it."""
    return tensor.untyped_storage()._cdata


aten = torch.ops.aten

FRESH_RESULT = frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.convolution.default,
        aten.convolution_backward.default,
    }
)
"""Overloads whose results are memory of their own that nobody else holds: a kernel may write over what was read."""

DTYPES: dict[torch.dtype, str] = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int64: "int64", torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8",
    torch.bool: "bool",
}  # fmt: skip
"""The types that a kernel can hold."""

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """TVM's name of a torch type. Raises KeyError for one that no kernel holds."""
    return DTYPES[dtype]


def torch_dtype(name: str) -> torch.dtype:
    """The torch type of TVM's name."""
    return TORCH_DTYPES[name]
