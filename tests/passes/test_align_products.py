"""Products on a GPU with padded operands give what they gave. Traced on a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from bridge.ir.joint import Graph, Phase, Role
from bridge.ledger import Ledger
from bridge.passes.align_products import align_products

aten = torch.ops.aten

PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    "columns": (torch.mm, [(2048, 2048), (2048, 521)]),
    "inner size": (torch.mm, [(2048, 1333), (1333, 2048)]),
    "rows of a transposed one": (lambda a, b: torch.mm(a.t(), b), [(2048, 521), (2048, 2048)]),
    "with a row": (torch.addmm, [(521,), (2048, 2048), (2048, 521)]),
    "with a row, inner size": (torch.addmm, [(2048,), (2048, 1333), (1333, 2048)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_padded_product_is_the_product(name: str) -> None:
    function, shapes = PRODUCTS[name]
    with FakeTensorMode():
        fakes = [torch.empty(shape, dtype=torch.bfloat16, device="cuda") for shape in shapes]
        module = make_fx(function)(*fakes)
    graph = Graph("graph_0", Phase.INFERENCE, module, (Role.INPUT,) * len(shapes), (Role.OUTPUT,))
    aligned = align_products(graph, Ledger())
    (product,) = [n for n in aligned.nodes if n.target in (aten.mm.default, aten.addmm.default)]
    factors = [source.meta["val"] for source in product.all_input_nodes[-2:]]
    assert all(size % 8 == 0 for factor in factors for size in factor.shape)
    result = aligned.nodes[-1].args[0]
    assert isinstance(result, fx.Node)
    assert result.meta["val"].stride() == graph.nodes[-1].args[0].meta["val"].stride()  # type: ignore[union-attr]
    given = [torch.randint(-3, 4, shape).float() for shape in shapes]
    torch.testing.assert_close(aligned.module(*given), function(*given))


def test_a_product_with_a_whole_matrix_is_left_alone() -> None:
    with FakeTensorMode():
        fakes = [torch.empty(s, dtype=torch.bfloat16, device="cuda") for s in ((2048, 521), (2048, 2048), (2048, 521))]
        module = make_fx(torch.addmm)(*fakes)
    graph = Graph("graph_0", Phase.INFERENCE, module, (Role.INPUT,) * 3, (Role.OUTPUT,))
    assert align_products(graph, Ledger()) is graph
