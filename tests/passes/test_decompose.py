"""The table of decompositions, and what has to be kept out of it."""

from __future__ import annotations

import pytest
import torch

import bridge
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


def test_one_tensor_laid_beside_none_is_not_saved() -> None:
    """Neither the copy nor what is computed from it is: the backward has the input, and makes them again."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x]).exp().sin() * torch.stack([x]).sum()

    x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
    compiled = bridge.compile(function)
    (mine,), (theirs,) = (torch.autograd.grad(call(x).sum(), [x]) for call in (compiled, function))
    torch.testing.assert_close(mine, theirs)
    forward, *_ = bridge.inspect(compiled).graphs
    _, *saved = forward.graph.nodes[-1].args[0]  # type: ignore[misc]
    assert "placeholder" in {node.op for node in saved}  # type: ignore[union-attr]
    assert all(node.op == "placeholder" or node.meta["val"].numel() == 1 for node in saved)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "given", [torch.randn(3, 4).mT, torch.randn(2, 3, 4, 5)[:, ::2], torch.randn(0), torch.ones(3)]
)
def test_one_tensor_laid_beside_none_lies_as_eager_has_it(given: torch.Tensor) -> None:
    compiled = bridge.compile(lambda x: torch.cat([x]), "eager")
    found, wanted = compiled(given), torch.cat([given])
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()
    assert found.data_ptr() != given.data_ptr() or not given.numel()
