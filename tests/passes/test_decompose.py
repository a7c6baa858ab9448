"""The table of decompositions, and what has to be kept out of it."""

from __future__ import annotations

import torch

from bridge.passes.batch_norm import BATCH_NORM
from bridge.passes.decompose import KEPT_WHOLE, decompositions
from bridge.passes.logits import LOGITS

aten = torch.ops.aten


def test_composites_are_decomposed_and_what_is_kept_whole_is_not() -> None:
    table = decompositions()
    assert aten.mse_loss.default in table
    assert aten.threshold_backward.default in table
    assert aten.mm.default not in table
    written = {*BATCH_NORM, *LOGITS}  # as the same op with fewer arguments, and on a GPU alone
    assert set(KEPT_WHOLE) & set(table) <= written


def test_the_trap_is_kept_out() -> None:
    assert aten._scaled_dot_product_flash_attention_for_cpu.default in KEPT_WHOLE


def test_the_table_is_made_once() -> None:
    assert decompositions() is decompositions()


def test_random_ops_are_not_decomposed_into_others() -> None:
    """Inductor's table writes dropout with `rand`: another stream than eager's."""
    assert aten.native_dropout.default not in decompositions()
