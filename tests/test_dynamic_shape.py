"""Sizes that are symbols: one compilation for all of them, static programs for those that come often."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import bridge
from bridge.errors import BadOption
from bridge.ir.shapes import symbols_of
from bridge.ir.sizes import solved
from bridge.options import Options
from bridge.runtime.hot import HOT


class Mixer(nn.Module):
    """Mixes along both symbolic dimensions: sums, a softmax, a transpose and a product over the length."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.norm, self.out = nn.Linear(8, 12), nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.inside(x))
        weights = (hidden @ hidden.transpose(1, 2)).softmax(-1)
        return self.out((weights @ hidden).transpose(0, 1).reshape(-1, 12)).log_softmax(-1)


def gradients(module: nn.Module, call: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad()
    call(x).square().mean().backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


@pytest.fixture(scope="module")
def mixer() -> tuple[nn.Module, Any, nn.Module]:
    torch.manual_seed(0)
    module, eager = Mixer(), Mixer()
    eager.load_state_dict(module.state_dict())
    compiled = bridge.compile(module, dynamic=True)
    compiled(torch.randn(3, 7, 8)).sum().backward()  # of sizes that are equal at first, torch makes one symbol
    return module, compiled, eager


@settings(max_examples=25, deadline=None)
@given(batch=st.integers(2, 40), length=st.integers(2, 70))
def test_one_compilation_serves_every_size(mixer: tuple[nn.Module, Any, nn.Module], batch: int, length: int) -> None:
    module, compiled, eager = mixer
    x = torch.randn(batch, length, 8)
    for mine, theirs in zip(gradients(module, compiled, x), gradients(eager, eager, x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert len(bridge.inspect(compiled).graphs) == 2
    assert not compiled.ledger.select(dead_end="dynamic_shape")


def test_images_of_every_size() -> None:
    """Halved twice: the sides of what is normalised are quotients of a symbol."""
    torch.manual_seed(0)
    halve = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8)]
    module = nn.Sequential(*halve, nn.ReLU())
    compiled, eager = bridge.compile(module, dynamic=True), copy.deepcopy(module)
    for batch, side in ((4, 32), (3, 33), (2, 47), (5, 6)):
        x = torch.randn(batch, 3, side, side)
        for mine, theirs in zip(gradients(module, compiled, x), gradients(eager, eager, x), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert len(bridge.inspect(compiled).graphs) == 2
    assert not compiled.ledger.select(dead_end="dynamic_shape")


def test_sizes_that_come_often_get_static_programs() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 7), nn.GELU(), nn.LayerNorm(7))
    compiled, eager = bridge.compile(module, dynamic="hot"), copy.deepcopy(module)
    for _ in range(HOT + 2):
        for size in (5, 9):
            x = torch.randn(size, 6)
            for mine, theirs in zip(gradients(module, compiled, x), gradients(eager, eager, x), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    symbolic, static = bridge.inspect(compiled).graphs[:2], bridge.inspect(compiled).graphs[2:]
    assert len(static) == 4
    assert {graph.graph.name.rpartition("=")[2] for graph in static} == {"5", "9"}
    assert [graph.runs[0] for graph in symbolic] == [2 * HOT] * 2
    assert all(graph.runs[0] == 2 for graph in static)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(BadOption, match="hot"):
        Options(dynamic="cold")  # type: ignore[arg-type]


def by_a_number(x: torch.Tensor) -> torch.Tensor:
    count = int((x > 0).sum())
    return x.flatten()[:count] * 2


def by_places(x: torch.Tensor) -> torch.Tensor:
    return x[(x > 0).nonzero()[:, 0]] * 2


def by_a_mask(x: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x, x > 0).exp()


def by_repeats(x: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x, (x[:, 0] > 0).long() + 1, dim=0).square()


def by_equal_masks(x: torch.Tensor) -> torch.Tensor:
    """Two equal masks: torch would merge them, and lose the name of one's size."""
    first = torch.cat([x[x > 0], x.flatten()])
    return first.sum() * torch.cat([x[x > 0], x.flatten()]).exp()


def by_a_start(x: torch.Tensor) -> torch.Tensor:
    """Torch names a size, and where the piece begins in memory."""
    begin = (x > 9).sum()
    return x[:, begin : begin + 2].exp()


@pytest.mark.parametrize("function", [by_a_number, by_places, by_a_mask, by_repeats, by_equal_masks, by_a_start])
def test_sizes_that_depend_on_values_stay_in_the_graph(function: Callable[..., torch.Tensor]) -> None:
    compiled = bridge.compile(function)
    for seed in (0, 1):
        torch.manual_seed(seed)
        mine = torch.randn(6, 4, requires_grad=True)
        theirs = mine.detach().clone().requires_grad_()
        result, expected = compiled(mine), function(theirs)
        torch.testing.assert_close(result, expected)
        result.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert len(bridge.inspect(compiled).graphs) == 2
    assert not compiled.ledger.select(kind="uncaptured")


def test_a_branch_on_a_value_breaks_the_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 0 else x * 3

    compiled = bridge.compile(function)
    for x in (torch.ones(4), -torch.ones(4)):
        torch.testing.assert_close(compiled(x), function(x))
    assert compiled.ledger.select(kind="uncaptured")


def test_what_is_squeezed_if_a_value_says_so() -> None:
    """Torch keeps the dimension in the graph, whatever the value."""

    def function(x: torch.Tensor) -> torch.Tensor:
        begin = (x > 9).sum()
        return x[:, begin : (x > -9).sum() - 4].squeeze(1).exp()

    compiled = bridge.compile(function)
    for columns in (5, 6):
        x = torch.ones(1, columns)
        torch.testing.assert_close(compiled(x), function(x))
    assert compiled.ledger.select(kind="uncaptured")


def test_without_read_values_the_graph_breaks() -> None:
    compiled = bridge.compile(by_places, options={"read_values": False})
    x = torch.randn(6, 4)
    torch.testing.assert_close(compiled(x), by_places(x))
    assert compiled.ledger.select(kind="uncaptured")


def programs_by_size(function: Callable[[torch.Tensor], torch.Tensor]) -> list[int]:
    """How many programs there are after each of three numbers of rows, which are marked as dynamic."""
    compiled = bridge.compile(function)
    programs = []
    for size in (3, 5, 8):
        x = torch.randn(size, 4)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), function(x))
        programs.append(len(bridge.inspect(compiled).graphs))
    return programs


def test_what_follows_a_break_keeps_symbols() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        torch._dynamo.graph_break()
        return y.sum(1).cos()

    assert programs_by_size(function) == [2, 2, 2]


in_plain_python: Any = torch.compiler.disable(lambda x: x.sqrt())


def test_what_plain_python_makes_behind_a_break_keeps_symbols() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        y = in_plain_python(x.exp())
        return y.reshape(rows, -1, 2).cos()

    assert programs_by_size(function) == [2, 2, 2]


def test_static_sizes_are_not_marked_behind_a_break() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return in_plain_python(x.exp()).cos()

    compiled = bridge.compile(function)
    compiled(torch.randn(3, 4))
    nodes = [node for graph in bridge.inspect(compiled).graphs for node in graph.graph.nodes]
    assert nodes
    assert not any(symbols_of(node) for node in nodes)


def test_what_a_part_is_called_with_says_nothing_of_the_input() -> None:
    """Torch makes symbols of sizes that it has seen to change, here within one call."""

    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return x * 2

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Doubled()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.part(x)[:2], self.part(x[:2])
            torch._dynamo.graph_break()
            return (parts[0] + parts[1]).cos() * x.sum()

    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    compiled = bridge.compile(Whole())
    torch.testing.assert_close(compiled(x), Whole()(x))
    *_, last = bridge.inspect(compiled).graphs
    symbolic = [any(symbols_of(node) for node in graph.graph.nodes) for graph in bridge.inspect(compiled).graphs]
    assert any(symbolic)
    assert not any(symbols_of(node) for node in last.graph.nodes)


def test_random_tensors_of_symbolic_sizes_may_name_a_generator() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        whole = torch.randint(0, 9, x.shape, generator=None)
        return torch.rand(x.shape, generator=None) + torch.randn(x.shape, generator=None) * whole

    compiled = bridge.compile(function, dynamic=True)
    for size in (3, 5):
        drawn = []
        for call in (compiled, function):
            torch.manual_seed(0)
            drawn.append(call(torch.zeros(size, 4)))
        torch.testing.assert_close(*drawn)
    assert len(bridge.inspect(compiled).graphs) == 1
    assert not compiled.ledger.select(kind="uncaptured")


def test_missing_gradients_stay_missing_with_symbolic_sizes() -> None:
    first, second = nn.Linear(4, 3), nn.Linear(4, 2)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return first(x), second(x)

    bridge.compile(function, dynamic=True)(torch.randn(5, 4))[0].sum().backward()
    assert first.weight.grad is not None
    assert second.weight.grad is None


def test_sizes_are_solved_from_expressions() -> None:
    sizes = ShapeEnv()
    u, v = sizes.create_unbacked_symint(), sizes.create_unbacked_symint()
    names = [str(u.node.expr), str(v.node.expr)]
    lines = "\n".join(f"{name} = {text}" for name, text in solved([("b", u * 3 * v), ("a", u + 40)], ()))
    scope = {"a": 47, "b": 105}
    exec(lines, scope)
    assert [scope[name] for name in names] == [7, 5]
    assert not list(solved([("a", u * u)], ()))


MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "flat": lambda x: x.reshape(-1),
    "turned": lambda x: x.flip(0),
    "cut": lambda x: x[1:],
    "ended": lambda x: x[:-1],
    "grown": lambda x: torch.cat([x.new_ones(1).expand(1, *x.shape[1:]), x]),
    "across": lambda x: x.transpose(0, -1),
    "parted": lambda x: x.reshape(x.shape[0], -1),
    "twice": lambda x: torch.stack([x, x.sin()], -1),
    "every other": lambda x: x[::2],
}


@settings(max_examples=12, deadline=None, derandomize=True)  # some chains that divide by n - 1 take LLVM minutes
@given(st.lists(st.lists(st.sampled_from(sorted(MOVES)), min_size=2, max_size=4), min_size=1, max_size=2))
@example([["flat", "cut", "turned", "grown"], ["flat", "ended", "grown"]])  # a step backwards, over a product of sizes
def test_elements_are_moved_alike_at_every_size(chains: list[list[str]]) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [functools.reduce(lambda y, move: MOVES[move](y), chain, x) for chain in chains]

    compiled = bridge.compile(function, dynamic=True)
    for shape in ((5, 5, 5), (3, 4, 6)):
        mine = torch.randn(shape, requires_grad=True)
        theirs = mine.detach().clone().requires_grad_()
        results, expected = compiled(mine), function(theirs)
        torch.testing.assert_close(results, expected)
        for found in (results, expected):
            torch.stack([result.square().sum() for result in found]).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_batch_of_images_stays_a_symbol() -> None:
    """oneDNN and NNPACK have another way for 16 images and more."""
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1))
    compiled = bridge.compile(module, dynamic=True)
    flags = torch._C._get_mkldnn_enabled(), torch._C._get_nnpack_enabled()
    for batch in (4, 2, 15, 16, 40):
        images = torch.randn(batch, 3, 9, 9)
        torch.testing.assert_close(compiled(images), module(images), atol=1e-5, rtol=1e-5)
        compiled(images).sum().backward()
    assert len(bridge.inspect(compiled).graphs) == 2
    assert flags == (torch._C._get_mkldnn_enabled(), torch._C._get_nnpack_enabled())
