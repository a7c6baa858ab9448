"""Whether results are eager's: exact where they can be, and as near to float64's as float arithmetic allows."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from bridge.conformance.calls import Call
from bridge.conformance.elements import differing
from bridge.conformance.variants import strided
from bridge.ir.schema import defaults

aten = torch.ops.aten

FREE_AMONG_EQUALS = (aten.sort.default, aten.topk.default, aten.kthvalue.default)
"""Overloads that do not promise which of several equal elements they name."""

INFINITE_OR_NAN = frozenset(
    {
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        aten.native_layer_norm.default,
        aten.native_layer_norm_backward.default,
        aten.native_group_norm.default,
        aten.native_group_norm_backward.default,
        aten.native_batch_norm_backward.default,
        aten.batch_norm_backward.default,
        aten.var_mean.correction,
        aten.std_mean.correction,
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
    }
)
"""Overloads where the order of the arithmetic, or a library's padding, decides whether an infinity becomes a NaN."""


def tensors(made: Any) -> list[torch.Tensor]:
    return [t for t in tree_flatten(made)[0] if isinstance(t, torch.Tensor)]


def disagreement(call: Call, got: list[torch.Tensor]) -> str | None:
    """What is wrong with the results of a call; None if nothing is. What `empty` holds is nobody's business.

    Torch's loops over vectors and over single elements disagree on a few special values, and a few of its kernels
    misread strides. So an element is right if eager gives it for these values in any layout.
    """
    eager = tensors(call())
    for i, (mine, theirs) in enumerate(zip(got, eager, strict=True)):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return f"{call}, result {i}: {mine.dtype}{list(mine.shape)}, not {theirs.dtype}{list(theirs.shape)}"
    wrong = [torch.zeros(1)] * len(got) if "empty" in str(call.op) else differences(call, got, eager)
    for how in (torch.Tensor.contiguous, strided):
        if any(w.any() for w in wrong):
            with suppress(RuntimeError):
                other = call.mapped(how)
                wrong = [w & o for w, o in zip(wrong, differences(other, got, tensors(other())), strict=True)]
    for i, (w, mine, theirs) in enumerate(zip(wrong, got, eager, strict=True)):
        if w.any():
            at = tuple(w.nonzero()[0].tolist())
            return (
                f"{call}, result {i}: {int(w.sum())} of {w.numel()} differ, at {list(at)} {mine[at]}, not {theirs[at]}"
            )
    return None


def differences(call: Call, got: list[torch.Tensor], eager: list[torch.Tensor]) -> list[torch.Tensor]:
    """Where results differ from eager's."""
    if call.op in FREE_AMONG_EQUALS:
        eager, got = values_and_what_is_there(call, eager), values_and_what_is_there(call, got)
    precise = in_float64(call, eager)
    wrong = [differing(mine, theirs, exact) for mine, theirs, exact in zip(got, eager, precise, strict=True)]
    if call.op in INFINITE_OR_NAN:
        wrong = [w & (a.isfinite() | b.isfinite()) for w, a, b in zip(wrong, got, eager, strict=True)]
    return wrong


def values_and_what_is_there(call: Call, results: list[torch.Tensor]) -> list[torch.Tensor]:
    """The values, and what the positions point at: where values are equal, either position is right."""
    values, positions = results
    x, dim = call.args[0], dim_of(call)
    if not x.dim():
        return [values, values]
    kept = values.dim() == x.dim()
    there = x.gather(dim, positions if kept else positions.unsqueeze(dim))
    return [values, there if kept else there.squeeze(dim)]


def dim_of(call: Call) -> int:
    """The dim of a call, given or not."""
    given = dict(zip(defaults(call.op), call.args, strict=False)) | call.kwargs
    return given.get("dim", -1)


def in_float64(call: Call, eager: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results in float64 where torch takes such tensors, else eager's own."""
    try:
        made = tensors(call.mapped(lambda t: t.double() if t.is_floating_point() else t)())
    except (RuntimeError, TypeError):
        return eager
    same = [m.shape == e.shape and m.is_floating_point() == e.is_floating_point() for m, e in zip(made, eager)]
    return [m if s else e for m, e, s in zip(made, eager, same, strict=True)]
