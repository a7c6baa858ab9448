"""Whether results are eager's: exact where they can be, and as near to float64's as float arithmetic allows."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from bridge.ir.schema import defaults
from tests.backends.tvm.calls import Call

aten = torch.ops.aten

FREE_AMONG_EQUALS = (aten.sort.default, aten.topk.default, aten.kthvalue.default)
"""Overloads that do not promise which of several equal elements they name."""

RELATIVE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
ABSOLUTE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-4, torch.bfloat16: 1e-3}


def tensors(made: Any) -> list[torch.Tensor]:
    return [t for t in tree_flatten(made)[0] if isinstance(t, torch.Tensor)]


def disagreement(call: Call, got: list[torch.Tensor]) -> str | None:
    """What is wrong with the results of a call; None if nothing is. What `empty` holds is nobody's business."""
    eager = tensors(call())
    if "empty" in str(call.op):
        got, eager = [t.zero_() for t in got], [t.zero_() for t in eager]
    if call.op in FREE_AMONG_EQUALS:
        eager, got = values_and_what_is_there(call, eager), values_and_what_is_there(call, got)
    precise = in_float64(call, eager)
    for i, (mine, theirs, exact) in enumerate(zip(got, eager, precise, strict=True)):
        wrong = differing(mine, theirs, exact)
        if wrong:
            return f"{call}, result {i}: {wrong}"
    return None


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


def differing(mine: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> str | None:
    if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
        return f"{mine.dtype}{list(mine.shape)}, not {theirs.dtype}{list(theirs.shape)}"
    if not mine.is_floating_point():
        wrong = mine != theirs
    else:
        a, b, e = mine.double(), theirs.double(), exact.double()
        largest = e[torch.isfinite(e)].abs().max().clamp(1.0, 1e4) if torch.isfinite(e).any() else 1.0
        error = ABSOLUTE[mine.dtype] * largest + RELATIVE[mine.dtype] * e.abs() + 4 * (b - e).abs()
        finite = torch.isfinite(a) & torch.isfinite(b)
        near = finite & ((a - e).abs() <= torch.where(torch.isfinite(error), error, 0.0))
        wrong = ~(near | (a == b) | (a.isnan() & b.isnan()))
    if not wrong.any():
        return None
    where = wrong.nonzero()[0].tolist()
    return f"{int(wrong.sum())} of {wrong.numel()} differ, at {where} {mine[tuple(where)]}, not {theirs[tuple(where)]}"
