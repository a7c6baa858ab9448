"""Without a library, what values decide is counted by a kernel, read as a number, and generated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import bridge
from bridge.ledger import Way
from tests.passes.test_places import WAYS, compiled_as_eager, holding


def rows_of_places(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask.nonzero()[:, 0]] * 2


def places_themselves(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return mask.nonzero()


def columns_of_floats(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x.detach() * mask).nonzero(as_tuple=True)[1] + 1


def chosen(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x, mask[0]).exp()


def repeated(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(mask[:, 0].long() + mask[:, 1], 0) * 2


def places_of_complex_numbers(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.complex(x.detach() * mask, x.detach() * mask.flip(0)).nonzero() + 1


OWN = [rows_of_places, places_themselves, columns_of_floats, chosen, repeated, places_of_complex_numbers]
COMPUTE_NOTHING = ("_local_scalar_dense", "_assert_scalar", "_assert_async")


@pytest.mark.parametrize("function", [*WAYS, *OWN])
def test_nothing_is_called(function: Callable[..., torch.Tensor]) -> None:
    compiled = compiled_as_eager(function, library=False)
    graphs = bridge.inspect(compiled).graphs
    assert any(way is Way.GENERATED for graph in graphs for way in graph.placement.values())
    called = {name for graph in graphs for name, way in graph.placement.items() if way is not Way.GENERATED}
    assert not [name for name in called if not name.startswith(COMPUTE_NOTHING)]


def test_places_are_found_among_sizes_that_are_symbols() -> None:
    compiled = bridge.compile(lambda x, mask: x[mask] * 2, library=False, dynamic=True)
    for rows in (3, 5, 7):
        x, mask = torch.randn(rows, 4), torch.rand(rows, 4) < 0.5
        torch.testing.assert_close(compiled(x, mask), x[mask] * 2)
    assert not compiled.ledger.select(dead_end="maintenance")


def test_as_many_places_as_they_are_written_to() -> None:
    compiled = bridge.compile(lambda x, mask, rows: x.index_add(0, mask.nonzero()[:, 0], rows), library=False)
    x, rows = torch.randn(6, 2), torch.randn(3, 2)
    torch.testing.assert_close(compiled(x, holding(0, 2, 5), rows), x.index_add(0, torch.tensor([0, 2, 5]), rows))
    with pytest.raises(RuntimeError):
        compiled(x, holding(0, 2), rows)
    assert not compiled.ledger.select(dead_end="coverage")


def test_a_mask_without_dimensions_chooses_one_or_none() -> None:
    compiled = bridge.compile(lambda x, mask: torch.masked_select(x, mask).exp(), library=False)
    for mask in (torch.tensor(True), torch.tensor(False)):
        x = torch.randn(())
        torch.testing.assert_close(compiled(x, mask), torch.masked_select(x, mask).exp())
    assert not compiled.ledger.select(dead_end="coverage")


@pytest.mark.parametrize(
    ("output_size", "repeats", "said"),
    [(None, [3, -1, 2], "repeats can not be negative"), (4, [1, 0, 2], "repeats do not add up to output_size=4")],
)
def test_wrong_repeats_raise(output_size: int | None, repeats: list[int], said: str) -> None:
    def function(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return x.repeat_interleave(counts, 0, output_size=output_size) * 2

    compiled = bridge.compile(function, library=False)
    x, right = torch.arange(3.0), torch.tensor([2, 0, 2])
    torch.testing.assert_close(compiled(x, right), function(x, right))
    wrong = torch.tensor(repeats)
    with pytest.raises(RuntimeError):
        function(x, wrong)
    with pytest.raises(RuntimeError, match=f"{said}, at test_counted"):
        compiled(x, wrong)
