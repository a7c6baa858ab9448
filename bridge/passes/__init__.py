"""Graph → graph. Each pass leaves what it is given as it was."""

from __future__ import annotations

from collections.abc import Callable

from bridge.ir.joint import Graph
from bridge.ledger import Ledger
from bridge.passes.align_products import align_products
from bridge.passes.canonicalise import canonicalise
from bridge.passes.counted import count_places
from bridge.passes.lay_out_images import lay_out_images
from bridge.passes.multiply_channels import multiply_channels
from bridge.passes.narrow_places import narrow_places_of_step
from bridge.passes.pad_convolutions import pad_convolutions
from bridge.passes.part_gradients import part_gradients
from bridge.passes.places import find_places
from bridge.passes.take_apart import take_apart, take_transforms_apart

PASSES: tuple[Callable[[Graph, Ledger], Graph], ...] = (
    lay_out_images, multiply_channels, part_gradients, pad_convolutions, narrow_places_of_step, canonicalise,
    find_places, take_apart, align_products,
)  # fmt: skip
"""Every pass over a graph that is about to be lowered, in order."""

WITHOUT_LIBRARY: tuple[Callable[[Graph, Ledger], Graph], ...] = (
    narrow_places_of_step, canonicalise, find_places, count_places, take_transforms_apart, align_products,
)  # fmt: skip
"""As `PASSES`, where no library is called that could want images otherwise."""
