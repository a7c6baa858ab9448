"""The same call with tensors that bring trouble: special values, other layouts, no elements, no dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan

import torch
from torch._ops import OpOverload

from bridge.backends.tvm.table import Conversion
from bridge.conformance.calls import Call

aten = torch.ops.aten

SPECIAL = (nan, inf, -inf, 0.0, -0.0, 1e-40, 3.5, -2.5, 1e30)

ORDER = "what 1e30 leaves of a sum depends on its order"
PADDING = "whether a weight of NaN is multiplied by the padding depends on the library"
PLACES = "torch reads anywhere at coordinates that are no numbers, and may end the process"

SORTED = "what is searched has to be sorted, and a NaN is last in no order"

PIVOTS = "which row a NaN is exchanged with, and where it spreads to, depends on the library"

NO_SPECIAL_VALUES: dict[OpOverload, str] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: "torch takes a query of NaN for one that may ask nothing",
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: ORDER,
    aten.bucketize.Tensor: SORTED,
    aten.searchsorted.Tensor: SORTED,
    aten.grid_sampler_2d.default: PLACES,
    aten.grid_sampler_2d_backward.default: PLACES,
    aten.convolution.default: PADDING,
    aten.convolution_backward.default: PADDING,
    aten.linalg_lu_factor_ex.default: PIVOTS,
    aten.linalg_lu.default: PIVOTS,
    aten.linalg_inv_ex.default: PIVOTS,
    aten._linalg_det.default: PIVOTS,
    aten._linalg_slogdet.default: PIVOTS,
    aten._linalg_solve_ex.default: PIVOTS,
    aten.linalg_qr.default: PIVOTS,
    aten.linalg_cholesky_ex.default: PIVOTS,
    aten.geqrf.default: PIVOTS,
}
"""Overloads whose results for special values are nobody's promise, and why."""


def special(tensor: torch.Tensor, values: tuple[float, ...] = SPECIAL, every: int = 7) -> torch.Tensor:
    """Numbers that are hard to get right, in place of a few elements."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    flat = tensor.clone().reshape(-1)
    places = range(0, flat.numel(), every)
    for count, place in enumerate(places):
        flat[place] = values[count % len(values)]
    return flat.reshape(tensor.shape)


def specials(call: Call) -> Iterator[Call]:
    """Special values in all tensors, and in each one alone: a NaN in the gradient is not one in the input."""
    if call.op in NO_SPECIAL_VALUES:
        return
    yield call.mapped(special)
    floats = [t for t in call.tensors if t.is_floating_point()]
    if len(floats) > 1:
        for one in floats:
            yield call.mapped(lambda t, one=one: special(t) if t is one else t)


def only_one_kind(call: Call) -> Iterator[Call]:
    """Numbers and NaN, and numbers and infinity of one sign: where all of them meet in a sum, NaN hides the others."""
    if NO_SPECIAL_VALUES.get(call.op, ORDER) == ORDER:
        for value in (nan, inf, -inf):
            yield call.mapped(lambda t, value=value: special(t, (value,), 11))


def with_an_offset(tensor: torch.Tensor) -> torch.Tensor:
    """A view that begins three elements into its storage."""
    room = torch.zeros(tensor.numel() + 3, dtype=tensor.dtype)
    view = room[3:].view(tensor.shape)
    view.copy_(tensor)
    return view


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger tensor, dimensions in another order."""
    room = torch.zeros([2 * n for n in reversed(tensor.shape)], dtype=tensor.dtype)
    view = room[tuple(slice(None, None, 2) for _ in tensor.shape)].permute(list(reversed(range(tensor.dim()))))
    view.copy_(tensor)
    return view


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """The first slice over and over."""
    return tensor[:1].expand_as(tensor) if tensor.dim() and tensor.shape[0] > 1 else tensor


def layouts(call: Call) -> Iterator[Call]:
    """The call with its tensors lying otherwise in memory."""
    yield call.mapped(with_an_offset)
    yield call.mapped(strided)
    if NO_SPECIAL_VALUES.get(call.op) != PIVOTS:  # of equal rows nothing but rounding is factorised
        yield call.mapped(expanded)


def extents(call: Call) -> Iterator[Call]:
    """An element-wise call of tensors with no elements, and with no dimensions."""
    shapes = {t.shape for t in call.tensors}
    if len(shapes) == 1 and call.tensors[0].numel():
        yield call.mapped(lambda t: t.reshape(-1)[:0])
        yield call.mapped(lambda t: t.reshape(-1)[0])


def variants(row: Conversion, call: Call) -> list[Call]:
    """The variants that make sense of a call."""
    made = list(specials(call))
    return made + list(extents(call)) if row.promote is not None else made
