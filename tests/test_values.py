"""Numbers and sizes that are read out of tensors: in the graph where torch is right about them, else outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import bridge


def number(x: torch.Tensor) -> float:
    return x.max().item()


def whole_number(x: torch.Tensor) -> int:
    return x.argmax().item()  # type: ignore[return-value]


def truth(x: torch.Tensor) -> bool:
    return (x > 0.5).any().item()  # type: ignore[return-value]


def as_factor(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def filled_with_a_power(x: torch.Tensor) -> torch.Tensor:
    return x + torch.full((3,), x.abs().mean().item() ** 2)


def at_places(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The parts begin where the places say: the offset of a tensor is a symbol."""
    return torch.tensor_split(x.exp(), (x > -9).cumsum(0)[:2])


@pytest.mark.parametrize("function", [number, whole_number, truth, as_factor, filled_with_a_power, at_places])
def test_numbers_are_read_inside_the_graph(function: Callable[..., Any]) -> None:
    compiled = bridge.compile(function)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(3)
        found, expected = compiled(x), function(x)
        assert type(found) is type(expected)
        torch.testing.assert_close(found, expected)
    assert len(bridge.inspect(compiled).graphs) == 1
    assert not compiled.ledger.select(kind="uncaptured")
    assert not compiled.ledger.select(kind="compiler failed")


def test_a_size_that_is_told_by_cases_is_computed() -> None:
    """Whether a place is counted from the end depends on its value."""
    compiled = bridge.compile(lambda x, place: torch.narrow(x.cos(), 0, place, 1))
    x = torch.randn(3)
    for place in (0, -1):
        found = compiled(x, torch.tensor(place))
        torch.testing.assert_close(found, x.cos().narrow(0, place, 1))
    assert not compiled.ledger.select(kind="compiler failed")


def test_a_view_of_a_known_size_at_a_place_that_values_decide() -> None:
    """What reads the slice tells that it has one column; where it begins, and whether it has, values decide."""
    factor = torch.linspace(-1, 1, 10).reshape(5, 2)

    def function(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        part = x[:, place[0].item() : place[1].item()]  # type: ignore[misc]
        return torch.cat([x, part], 1) @ factor

    x = torch.linspace(-2, 3, 12).reshape(3, 4)
    compiled = bridge.compile(function)
    for begin in (1, 3, 0):
        place = torch.tensor([begin, begin + 1])
        torch.testing.assert_close(compiled(x, place), function(x, place))
    assert not compiled.ledger.select(kind="compiler failed")
    (graph,) = bridge.inspect(compiled).graphs
    assert "sized_slice" in graph.source
    with pytest.raises(RuntimeError, match=r"slice.Tensor: dimension 1 is of size 2, .* takes 1 alone, at .*place"):
        compiled(x, torch.tensor([1, 3]))


def test_a_gradient_whose_size_is_a_sum_of_numbers_that_were_read() -> None:
    """Torch traces the forward twice, and a gradient has the symbols of the first time."""

    class Padded(nn.Module):
        def forward(self, x: torch.Tensor, before: torch.Tensor, behind: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(x, (before, behind), mode="reflect")  # type: ignore[arg-type]

    net = Padded()
    compiled = bridge.compile(net, dynamic=True)
    for length, border in ((8, (1, 2)), (9, (3, 1)), (9, (2, 2))):
        given = [torch.linspace(-1, 1, 2 * length).reshape(1, 2, length).requires_grad_() for _ in range(2)]
        for module, x in zip((compiled, net), given, strict=True):
            y = module(x, *map(torch.tensor, border))
            (y * torch.linspace(1, 2, y.numel()).reshape(y.shape)).sum().backward()
        torch.testing.assert_close(given[0].grad, given[1].grad)
    assert any(" = 0\n" in graph.source for graph in bridge.inspect(compiled).graphs)


def selected_by_a_wider_mask(x: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x, x.expand(4, 3) > -9)


def unique_from_the_end(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.unique_consecutive(x, return_inverse=True, dim=-1)


def joined_without_a_size_of_one(x: torch.Tensor) -> torch.Tensor:
    """Whether `squeeze` takes a dimension away depends on a value, and so does whether `cat` can be called."""
    row = x[None, : (x > -9).sum().item() - 2]
    return torch.cat([x[:1], row.squeeze(1)])


@pytest.mark.parametrize("function", [selected_by_a_wider_mask, unique_from_the_end, joined_without_a_size_of_one])
def test_where_torch_is_wrong_about_sizes_the_graph_breaks(function: Callable[..., Any]) -> None:
    compiled = bridge.compile(function)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), function(x))
    assert compiled.ledger.select(kind="uncaptured")


class Looped(nn.Module):
    """A number that is read before a loop decides in each turn; `read` says how it gets to Python."""

    def __init__(self, read: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.read = read

    def turn(self, x: torch.Tensor, more: Any) -> torch.Tensor:
        x = self.linear(x)
        return x + 1 if more else x

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        more = self.read(mask > 0)
        for _ in range(2):
            x = self.turn(x, more)
        return x


def outside(model: nn.Module, *args: torch.Tensor) -> tuple[Any, set[str]]:
    """The model compiled, and what an audit finds outside of its graphs."""
    compiled = bridge.compile(model)
    for mask in (torch.ones(3), torch.zeros(3)):
        torch.testing.assert_close(compiled(args[0], mask), model(args[0], mask))
    output = torch.zeros(2, 4)
    audit = bridge.audit(lambda: torch.autograd.backward(compiled(*args), output))
    return compiled, {call.op for call in audit.uncaptured}


def test_a_number_read_before_a_loop_leaves_the_loop_captured() -> None:
    """Nothing computes outside: the graph breaks where the number is read, which computes nothing."""
    compiled, calls = outside(Looped(lambda mask: mask.any().item()), torch.randn(2, 4), torch.ones(3))
    assert not calls
    assert [event.op for event in compiled.ledger.select(kind="uncaptured")] == ["graph break"]


def test_a_frame_that_is_given_up_in_a_loop_is_told() -> None:
    compiled, calls = outside(Looped(torch.any), torch.randn(2, 4), torch.ones(3))
    assert calls == {"aten.gt.Scalar", "aten.any.default"}
    sources = [event.source for event in compiled.ledger.select(kind="uncaptured")]
    assert any("in forward" in source for source in sources)


def test_a_condition_of_a_number_is_no_factor_of_a_kernel() -> None:
    compiled = bridge.compile(lambda x, mask: x.sin() * (mask.sum().item() == 2))
    x = torch.randn(3)
    for mask in (torch.tensor([1, 1, 0]), torch.tensor([1, 0, 0])):
        torch.testing.assert_close(compiled(x, mask), x.sin() * (mask.sum() == 2))
    assert {event.kind for event in compiled.ledger} == {"number"}


def test_the_reason_is_that_of_the_graph_that_was_made() -> None:
    """Dynamo is asked twice of this frame: for its first answer, which it gave up, the loop was the reason."""

    def function(x: torch.Tensor) -> torch.Tensor:
        more = x.sum().item()
        for _ in range(2):
            x = x + 1 if more > 3 else x * 2
        return x

    compiled = bridge.compile(function)
    x = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(compiled(x), function(x))
    (event,) = compiled.ledger.select(kind="uncaptured")
    assert "item" in event.detail
