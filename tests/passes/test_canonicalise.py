"""Canonical graphs compute the same, alias the same, and draw the same random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import bridge
from bridge.ir.joint import Graph, Phase, Role
from bridge.ledger import Ledger
from bridge.passes.canonicalise import canonicalise, memory_order

aten = torch.ops.aten


def graph_of(function: Callable[..., Any], *args: torch.Tensor, mode: str = "fake") -> Graph:
    """A function's ATen graph, its results in a tuple, every node with its fake value."""
    module = make_fx(function, tracing_mode=mode)(*args)  # type: ignore[arg-type]
    return Graph("graph_0", Phase.FORWARD, module, (Role.INPUT,) * len(args), (Role.OUTPUT,))


def canonical(function: Callable[..., Any], *args: torch.Tensor, mode: str = "fake") -> tuple[Graph, Graph]:
    given = graph_of(function, *args, mode=mode)
    before = given.module.code
    made = canonicalise(given, Ledger())
    assert given.module.code == before, "a pass leaves what it is given as it was"
    return given, made


def targets(graph: Graph) -> list[Any]:
    return [node.target for node in graph.nodes if node.op == "call_function"]


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(4, 6, 10),
    "one element": lambda: torch.randn(()),
    "empty": lambda: torch.randn(0, 3),
    "channels last": lambda: torch.randn(2, 5, 4, 3).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(7, 5).t(),
    "permuted": lambda: torch.randn(3, 4, 5, 6).permute(2, 0, 3, 1),
    "size one": lambda: torch.randn(5, 1, 7).transpose(0, 1),
    "expanded": lambda: torch.randn(4, 1).expand(4, 6),
    "strided": lambda: torch.randn(8, 9)[::2, ::3],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dropout_draws_what_eager_draws(layout: str, p: float, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value, mask = aten.native_dropout(x, p, True)
        return value, mask, aten.rand_like(x)

    x = LAYOUTS[layout]().to(dtype)
    given, made = canonical(program, x)
    assert aten.native_dropout.default not in targets(made)
    assert targets(made).count(aten.bernoulli.p) == 1
    torch.manual_seed(3)
    expected = given.module(x)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    got = made.module(x)
    for one, other in zip(got, expected):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype or x.numel() == 0, "of nothing, ATen's mask has the type of the values"
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_mask_is_laid_out_as_eager_lays_it_out(layout: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return aten.native_dropout(x, 0.5, True)[1]

    x = LAYOUTS[layout]()
    _, made = canonical(program, x)
    expected = program(x)
    got = made.module(x)
    told = next(node for node in reversed(made.nodes) if node.op == "call_function").meta["val"]
    significant = [dim for dim in range(x.dim()) if x.shape[dim] > 1]
    if x.numel():
        assert [got.stride(dim) for dim in significant] == [expected.stride(dim) for dim in significant]
        assert [told.stride(dim) for dim in significant] == [expected.stride(dim) for dim in significant]


def test_dropout_with_symbolic_sizes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return aten.native_dropout(x, 0.5, True)[0]

    _, made = canonical(program, torch.randn(5, 4), mode="symbolic")
    assert aten.bernoulli.p in targets(made)
    for rows in (3, 9):
        x = torch.randn(rows, 4)
        torch.manual_seed(1)
        expected = program(x)
        torch.manual_seed(1)
        assert torch.equal(made.module(x), expected)


def test_canonicalising_draws_nothing() -> None:
    given = graph_of(lambda x: aten.native_dropout(x, 0.5, True)[0], torch.randn(4))
    state = torch.get_rng_state()
    canonicalise(given, Ledger())
    assert torch.equal(torch.get_rng_state(), state)


def test_inactive_dropout_stays_one_op() -> None:
    _, made = canonical(lambda x: aten.native_dropout(x, 0.5, False)[0], torch.randn(4))
    assert targets(made)[0] is aten.native_dropout.default


def test_aliases_go_except_where_the_caller_sees_them() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        return aten.alias(y), aten.exp(aten.detach(aten.alias(y)))

    x = torch.randn(3)
    given, made = canonical(program, x)
    named_alike = (aten.alias.default, aten.detach.default)  # by the series, detach is traced as the one or the other
    assert sum(target in named_alike for target in targets(given)) == 3
    assert targets(made) == [aten.sin.default, aten.alias.default, aten.exp.default]
    result, exponential = made.module(x)
    assert torch.equal(exponential, x.sin().exp())
    assert torch.equal(result, x.sin())


def test_a_constant_is_copied_only_for_who_could_write_into_it() -> None:
    constant = torch.arange(3.0)

    class WithConstant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("constant", constant)

    nodes = fx.Graph()
    x, held = nodes.placeholder("x"), nodes.get_attr("constant")
    copy = nodes.call_function(aten.lift_fresh_copy.default, (held,))
    added = nodes.call_function(aten.add.Tensor, (x, copy))
    viewed = nodes.call_function(aten.view.default, (copy, [3, 1]))
    nodes.output((added, viewed))
    module = fx.GraphModule(WithConstant(), nodes)
    made = canonicalise(Graph("graph_0", Phase.FORWARD, module, (Role.INPUT,), (Role.OUTPUT,) * 2), Ledger())
    kinds = {node.target: node for node in made.nodes if node.op == "call_function"}
    assert kinds[aten.add.Tensor].args[1].op == "get_attr"  # type: ignore[union-attr]
    assert kinds[aten.view.default].args[0].target is aten.lift_fresh_copy.default  # type: ignore[union-attr]
    made.module(torch.zeros(3))[1].zero_()
    assert torch.equal(constant, torch.arange(3.0))


def test_memory_order_of_fake_tensors() -> None:
    with FakeTensorMode():
        assert memory_order(torch.empty(2, 3, 4)) == [0, 1, 2]
        assert memory_order(torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)) == [0, 2, 3, 1]
        assert memory_order(torch.empty(4, 6)[:, ::2]) is None


def test_a_view_by_strides_is_taken_of_the_memory() -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        h = (x + 1).transpose(0, 1)[1:]
        return h.as_strided((3, 4), (2, 1), 5) * h.as_strided((3, 4), (1, 3)).sum()

    x = torch.arange(40.0).view(8, 5)
    compiled = bridge.compile(windows)
    assert torch.equal(compiled(x), windows(x))
    assert not [event for event in compiled.ledger if "as_strided" in event.op]


def test_dropping_everything_draws_nothing() -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 1.0) + torch.nn.functional.dropout(x, 0.5)

    compiled, states, results = bridge.compile(dropped), [], []
    for function in (dropped, compiled):
        torch.manual_seed(0)
        x = torch.tensor([[1.0, float("nan")], [2.0, 3.0]], requires_grad=True)
        y = function(x)
        y.nansum().backward()
        results.append((y, x.grad))
        states.append(torch.get_rng_state())
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(*states)
