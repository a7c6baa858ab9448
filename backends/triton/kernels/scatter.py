"""Write where indices say: scatter, index_put, index_add and the gradient of an embedding, with sums or without.

One kernel walks the elements that are written. Each has its place in the source, in the indices, and, by the
dimensions that are not indexed, in the result; the indices say the rest. Sums are atomic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from bridge.backends.triton.kernels.jit import jit
from bridge.backends.triton.kernels.layout import SUMMED_IN, is_far, merged, without
from bridge.backends.triton.table import launches
from bridge.ir.shapes import positive

aten = torch.ops.aten

CONFIGS = ({"BLOCK": 256, "num_warps": 4}, {"BLOCK": 1024, "num_warps": 4}, {"BLOCK": 1024, "num_warps": 8})


@jit
def write_kernel(
    out,
    indices,
    src,
    count,
    shape,
    out_strides,
    index_strides,
    src_strides,
    sizes,
    steps,
    skipped,
    SUM: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """sizes, steps: of the result's dimensions that are indexed, one for each of `indices`.

    An index that is `skipped` or out of range writes nothing.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < count
    if not WIDE:
        at = at.to(tl.int32)
    rest, into, told, read = at, tl.zeros_like(at), tl.zeros_like(at), tl.zeros_like(at)
    for d in tl.static_range(len(shape)):
        place = rest % shape[d]
        rest = rest // shape[d]
        into += place * out_strides[d]
        told += place * index_strides[d]
        read += place * src_strides[d]
    for k in tl.static_range(len(indices)):
        chosen = tl.load(indices[k] + told, live, 0).to(tl.int64)
        live = live & (chosen != skipped)
        chosen = tl.where(chosen < 0, chosen + sizes[k], chosen)
        live = live & (chosen >= 0) & (chosen < sizes[k])
        into += chosen.to(into.dtype) * steps[k]
    value = tl.load(src + read, live, 0).to(out.dtype.element_ty)
    if SUM:
        tl.atomic_add(out + into, value, live, sem="relaxed")
    else:
        tl.store(out + into, value, live)


NOTHING = -(2**62)
"""An index that nobody has."""


def write(
    out: torch.Tensor,
    out_strides: Sequence[int],
    indices: Sequence[torch.Tensor],
    index_strides: Sequence[int],
    src: torch.Tensor,
    dims: Sequence[int],
    config: Mapping[str, Any],
    accumulate: bool,
    skipped: int = NOTHING,
) -> None:
    """Write the elements of `src`, whose shape the strides are over, into `out`; `dims` of it are the indexed ones."""
    if src.numel() == 0:
        return
    shape, into, told, read = merged(src.shape, out_strides, index_strides, src.stride())
    sizes, steps = tuple(out.shape[d] for d in dims), tuple(out.stride(d) for d in dims)
    grid = (triton.cdiv(src.numel(), config["BLOCK"]),)
    wide = is_far(out, src, *indices)
    write_kernel[grid](
        out, tuple(indices), src, src.numel(), shape, into, told, read, sizes, steps, skipped,
        SUM=accumulate, WIDE=wide, **config,
    )  # fmt: skip


def summed(x: torch.Tensor) -> torch.Tensor:
    """A compact copy in the type that sums are made in."""
    return x.to(SUMMED_IN.get(x.dtype, x.dtype), copy=True, memory_format=torch.contiguous_format)


def copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def along(x: torch.Tensor, dim: int) -> Mapping[str, Any]:
    """All indices are below the size of their dimension."""
    return {"index": x.shape[dim] if x.dim() else 1}


def bool_sums(x: torch.Tensor) -> str | None:
    return "sums of bool" if x.dtype == torch.bool else None


@launches(aten.scatter_add.default, configs=CONFIGS, below=along, refuses=bool_sums, ordered=False)
def scatter_add(x, dim, index, src, *, config):
    """src may be larger than index; the part beyond index is not read."""
    return scattered(summed(x), dim, index, src, config, accumulate=True).to(x.dtype)


def only_sum(x: torch.Tensor, reduce: str, include_self: bool) -> str | None:
    if reduce != "sum" or not include_self:
        return f"reduce={reduce!r} with include_self={include_self}"
    return bool_sums(x)


@launches(aten.scatter_reduce.two, configs=CONFIGS, below=along, refuses=only_sum, ordered=False)
def scatter_reduce(x, dim, index, src, reduce, include_self, *, config):
    return scatter_add(x, dim, index, src, config=config)


@launches(aten.scatter.src, configs=CONFIGS, below=along, ordered=False)
def scatter(x, dim, index, src, *, config):
    return scattered(copied(x), dim, index, src, config, accumulate=False)


@launches(aten.scatter.value, configs=CONFIGS, below=along)
def scatter_value(x, dim, index, value, *, config):
    src = x.new_full((), value).expand(index.shape)
    return scattered(copied(x), dim, index, src, config, accumulate=False)


def scattered(
    out: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, config: Mapping[str, Any], accumulate: bool
) -> torch.Tensor:
    """The result, which is written in place, of a scatter along a dimension."""
    if out.dim() == 0:
        scattered(out[None], 0, index.reshape(1), src.reshape(1), config, accumulate)
        return out
    dim = positive(dim, out.dim())
    if index.dim() < out.dim():  # a 0-d index or source stands for one element
        index, src = index.reshape([1] * out.dim()), src.reshape([1] * out.dim())
    src = src[tuple(slice(size) for size in index.shape)]
    write(out, without(out.stride(), dim), [index], index.stride(), src, [dim], config, accumulate)
    return out


@launches(aten.index_add.default, configs=CONFIGS, below=along, refuses=bool_sums, ordered=False)
def index_add(x, dim, index, source, alpha, *, config):
    out = summed(x)
    if x.dim() == 0:
        out.copy_(index_add(x[None], 0, index.reshape(1), source.reshape(1), alpha, config=config)[0])
        return out.to(x.dtype)
    dim = positive(dim, x.dim())
    told = [index.stride(0) if at == dim and index.dim() else 0 for at in range(x.dim())]
    source = source.reshape([1] * x.dim()) if source.dim() < x.dim() else source
    source = source if alpha == 1 else source * alpha
    write(out, without(out.stride(), dim), [index], told, source, [dim], config, accumulate=True)
    return out.to(x.dtype)


@launches(
    aten.embedding_dense_backward.default,
    configs=CONFIGS,
    below=lambda num_weights: {"indices": num_weights},
    ordered=False,
)
def embedding_dense_backward(grad_output, indices, num_weights, padding_idx, *, config):
    """Without `scale_grad_by_freq`, which counts first."""
    width = grad_output.shape[-1]
    dtype = SUMMED_IN.get(grad_output.dtype, grad_output.dtype)
    out = torch.zeros((num_weights, width), dtype=dtype, device=grad_output.device)
    told = (*indices.stride(), 0)
    into = (*[0] * indices.dim(), 1)
    skipped = padding_idx if padding_idx >= 0 else NOTHING
    write(out, into, [indices], told, grad_output, [0], config, True, skipped)
    return out.to(grad_output.dtype)


def masks(x: torch.Tensor, indices: list[torch.Tensor | None], accumulate: bool) -> str | None:
    given = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return "a mask as an index"
    if not given or x.dim() == 0:
        return "nothing is indexed"
    if torch.are_deterministic_algorithms_enabled():
        return "elements are written in any order, and deterministic algorithms are asked for"
    return bool_sums(x) if accumulate else None


def by_dimension(x: torch.Tensor, indices: list[torch.Tensor | None]) -> Mapping[str, Any]:
    return {"indices": list(x.shape[: len(indices)])}


@launches(*(aten.index_put.default, aten._unsafe_index_put.default), configs=CONFIGS, below=by_dimension, refuses=masks)
def index_put(x, indices, values, accumulate, *, config):
    """The indexed dimensions stand together: where the first of them was, or in front if others are between them."""
    out = summed(x) if accumulate else copied(x)
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    told = torch.broadcast_tensors(*(indices[dim] for dim in dims))
    told = told if len(told) == 1 else [index.contiguous() for index in told]
    others = [dim for dim in range(x.dim()) if dim not in dims]
    front = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    shape = [*(x.shape[d] for d in others[:front]), *told[0].shape, *(x.shape[d] for d in others[front:])]
    into, strides = [0] * len(shape), [0] * len(shape)
    for at, dim in enumerate(others):
        into[at if at < front else at + told[0].dim()] = out.stride(dim)
    strides[front : front + told[0].dim()] = told[0].stride()
    write(out, into, told, strides, values.expand(shape), dims, config, accumulate)
    return out.to(x.dtype)
