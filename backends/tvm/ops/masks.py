"""The same values wherever a mask holds: each element is chosen alone, however often that is."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx.experimental.symbolic_shapes import statically_known_true

from bridge.backends.tvm.compat import Expr, added, reshaped, shape_of, tirx
from bridge.backends.tvm.kernels import cast, pointwise
from bridge.backends.tvm.ops.indexing import is_mask, no_masks


def no_masks_but_for_one_value(x, indices, values):
    """With a mask alone, and values that are the same for all that it lets through, each element is chosen alone."""
    given = [index for index in indices if index is not None]
    if len(given) == 1 and is_mask(given[0]):
        at = values.dim() - 1 - (x.dim() - len(indices) + 1 - given[0].dim())
        if at < 0 or statically_known_true(values.shape[at] == 1):
            return None
    return no_masks(indices)


def masked_put(x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool) -> Expr:
    """x with the same values wherever the one mask among the indices is True."""
    shape = shape_of(x)
    before, mask = next((place, index) for place, index in enumerate(indices) if index is not None)
    masked = shape_of(mask)
    beyond = shape[before + len(masked) :]
    mask = reshaped(mask, [*(1 for _ in range(before)), *masked, *(1 for _ in beyond)])
    given = shape_of(values)
    if len(given) > len(beyond):
        at = len(given) - len(beyond) - 1
        values = reshaped(values, [*given[:at], *(1 for _ in masked), *given[at + 1 :]])

    def element(m, v, new):
        return tirx.Select(m, added(v, new) if accumulate else new, v)

    return pointwise("masked_put", element, cast(mask, "bool"), x, values)
