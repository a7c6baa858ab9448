"""Kernels of every shape compute what eager does: tiles, lanes with a rest, wide columns, rows that are kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import bridge

Function = Callable[[torch.Tensor], torch.Tensor]

ROWS: dict[str, Function] = {
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of columns": lambda x: F.softmax(x, 0),
    "gelu and layer norm": lambda x: F.layer_norm(F.gelu(x), (x.shape[-1],)),
    "layer norm and softmax": lambda x: F.softmax(F.layer_norm(x, (x.shape[-1],)), -1),
    "masked softmax": lambda x: F.softmax(torch.where(x > 0, x.exp(), -x), -1),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "column sum of exponentials": lambda x: x.exp().sum(0),
    "transposed": lambda x: (x.t() * 2).contiguous(),
    "transposed and added": lambda x: x[: min(x.shape), : min(x.shape)] + x[: min(x.shape), : min(x.shape)].t(),
}


@pytest.mark.parametrize(
    "shape", [(2, 1), (3, 7), (33, 32), (48, 64), (17, 100), (16, 4100), (5, 9000), (520, 1030)], ids=str
)
def test_rows_and_columns(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    given = torch.randn(shape)
    together = bridge.compile(lambda x: [function(x) for function in ROWS.values()], options={"cache": False})
    mine, theirs = given.clone().requires_grad_(), given.double().requires_grad_()
    found, wanted = together(mine), [function(theirs) for function in ROWS.values()]
    for name, one, other in zip(ROWS, found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=2e-6, msg=lambda m, name=name: f"{name}: {m}")
    for (name, function), one, other in zip(ROWS.items(), found, wanted, strict=True):
        weight = torch.linspace(-1, 1, one.numel()).reshape(one.shape)
        (own,) = torch.autograd.grad(one, mine, weight, retain_graph=True)
        (exact,) = torch.autograd.grad(other, theirs, weight.double())
        (eager,) = torch.autograd.grad(function(mine), mine, weight)
        limit = max(2 * (eager - exact).abs().max().item(), 2e-5 * exact.abs().max().item())
        torch.testing.assert_close(own.double(), exact, rtol=0, atol=limit, msg=lambda m, name=name: f"{name}: {m}")
    assert all(ways["fallback"] == 0 < ways["generated"] for ways in together.placement.values())


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2)], ids=str)
@pytest.mark.parametrize("shape", [(32, 48, 64), (5, 33, 16), (3, 64, 7)], ids=str)
def test_permuted(order: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    compiled = bridge.compile(lambda x: (x.permute(order) + 1).contiguous())
    assert torch.equal(compiled(x), (x.permute(order) + 1).contiguous())
    (graph,) = bridge.inspect(compiled).graphs
    assert graph.kernel_calls == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_other_types_in_tiles(dtype: torch.dtype) -> None:
    x = (torch.randn(64, 96) * 4).to(dtype)
    compiled = bridge.compile(lambda x: x.t().contiguous())
    assert torch.equal(compiled(x), x.t())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_operation_rounds(dtype: torch.dtype) -> None:
    """What is computed in one kernel with float32 in between still equals what eager rounded."""

    def comparisons(a: torch.Tensor, b: torch.Tensor, known: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = a * b
        of_rows = (a.float() * b.float()).sum(1).to(dtype)
        return product == known, (a.float() * b.float()).to(dtype) == known, of_rows == of_rows.amax(), product + known

    torch.manual_seed(0)
    a, b = (torch.cat([torch.randn(63, 65), torch.full((1, 65), special)]).to(dtype) for special in (torch.inf, 0.0))
    compiled = bridge.compile(comparisons)
    for found, wanted in zip(compiled(a, b, a * b), comparisons(a, b, a * b), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    (graph,) = bridge.inspect(compiled).graphs
    assert all(way.name == "GENERATED" for way in graph.placement.values())


@pytest.mark.parametrize("shape", [(5, 10, 0), (0, 4, 3), (3, 0, 4)], ids=str)
def test_products_of_strided_matrices_without_elements(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    a, b = torch.randn(rows, 2 * inner)[:, ::2], torch.randn(columns, 2 * inner)[:, ::2].t()
    compiled = bridge.compile(lambda a, b: a @ b + 1)
    assert torch.equal(compiled(a, b), a @ b + 1)
    assert not list(bridge.inspect(compiled).ledger)
