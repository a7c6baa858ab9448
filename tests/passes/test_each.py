"""Each op over lists of tensors is written as ops of one tensor, and gives what torch gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import bridge
from bridge.ledger import Placement, Way
from bridge.passes.each import PREFIX, over_lists

aten: Any = torch.ops.aten
TABLE = over_lists()


def given(overload: Any) -> list[Any]:
    """Arguments that the overload takes: lists of two, of which the first may be left out of none."""
    torch.manual_seed(0)
    sizes = [[(3, 4), (2, 2)], [(4, 2), (2, 3)]] if "_foreach_mm" in str(overload) else [[(3, 4), (5,)]] * 3
    lists = iter(sizes)
    made: list[Any] = []
    for argument in overload._schema.arguments:
        kind = str(argument.type)
        if kind == "List[Tensor]":
            made.append([torch.rand(size) * 0.8 + 0.1 for size in next(lists)])
        elif kind == "List[number]":
            made.append([0.3, 2.0])
        elif argument.name == "scalars":
            made.append(torch.tensor([0.6, 1.2]))
        elif argument.has_default_value():
            break
        else:
            made.append(torch.tensor(0.6) if kind == "Tensor" else 0.7)
    return made


@pytest.mark.parametrize("overload", TABLE, ids=str)
def test_as_torch_has_it(overload: Any) -> None:
    args = given(overload)
    torch.testing.assert_close(TABLE[overload](*args), list(overload(*args)))


def test_every_op_over_lists_is_written() -> None:
    written = {str(overload).split(".")[1] for overload in TABLE}
    assert written == {name for name in dir(torch) if name.startswith(PREFIX) and not name.endswith("_")}


def test_arguments_by_name() -> None:
    x = [torch.randn(3), torch.randn(2, 2)]
    module = make_fx(
        lambda a, b: aten._foreach_add.List([a, b], [b.sum(), a.sum()], alpha=2), decomposition_table=TABLE
    )(*x)
    torch.testing.assert_close(module(*x), list(aten._foreach_add.List(x, [x[1].sum(), x[0].sum()], alpha=2)))


def test_what_changes_lists_in_place_is_generated() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = [x * 1, y * 1]
        aten._foreach_mul_.Scalar(made, 0.5)
        aten._foreach_lerp_.Scalar(made, [y.sin(), x.cos()], 0.25)
        return torch.stack(aten._foreach_norm.Scalar(made)).sum()

    x, y = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    compiled = bridge.compile(run)
    torch.testing.assert_close(compiled(x, y), run(x, y))
    gradients = [torch.autograd.grad(f(x, y), (x, y)) for f in (compiled, run)]
    torch.testing.assert_close(*gradients)
    placements = [record for record in bridge.coverage(run, x, y).records() if isinstance(record, Placement)]
    assert {placement.way for placement in placements} == {Way.GENERATED}
