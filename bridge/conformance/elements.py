"""Whether the elements of a result are right: eager's, or as near to float64's as float arithmetic allows."""

from __future__ import annotations

import torch

RELATIVE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
ABSOLUTE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-4, torch.bfloat16: 1e-3}


def differing(mine: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor, of_all: bool = False) -> torch.Tensor:
    """Where a result is neither eager's nor as near to float64's as eager is.

    mine, theirs: of one shape and dtype. exact: the same in float64, or `theirs` where there is none. Integers and
    booleans have to be equal. of_all: an element may also be as wrong as twice eager's worst one of the whole tensor,
    which is the measure for results of which every element hangs on all of the input.
    """
    if mine.is_complex():
        a, b, e = (torch.view_as_real(t.resolve_conj()) for t in (mine, theirs, exact.to(torch.complex128)))
        return differing(a, b, e, of_all).any(-1)
    if not mine.is_floating_point():
        return mine != theirs
    a, b, e = mine.double(), theirs.double(), exact.double()
    finite = torch.isfinite(e)
    largest = e[finite].abs().max().clamp(1.0, 1e4) if finite.any() else 1.0
    slack = torch.where(torch.isfinite(b - e), (b - e).abs(), 0.0)
    error = ABSOLUTE[mine.dtype] * largest + RELATIVE[mine.dtype] * e.abs() + 4 * slack
    if of_all and slack.numel():
        error = torch.maximum(error, 2 * slack.max())
    near = finite & ((a - e).abs() <= error)
    return ~(near | (a == b) | (a.isnan() & b.isnan()))
