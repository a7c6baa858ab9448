"""What loops written by hand read: views as they lie, without a copy."""

from __future__ import annotations

import torch

import bridge
from bridge.bench.memory import peak_bytes


def sums(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    wide = index.view(-1, 1).expand(-1, 64)
    into = torch.zeros(16, 64)
    y = (x * 2).view(-1, 64)
    return sum(into.scatter_reduce(0, wide, y, how) for how in ("sum", "amax", "amin", "mean"))  # type: ignore[return-value]


def test_an_index_is_not_written_out_to_the_width_of_what_is_scattered() -> None:
    x, index = torch.randn(200, 64), torch.randint(16, (200,))
    with torch.no_grad():
        compiled = bridge.compile(sums)
        torch.testing.assert_close(compiled(x, index), sums(x, index))
        (graph,) = bridge.inspect(compiled).graphs
        assert not [line for line in graph.source.splitlines() if "compact" in line and "= empty(" in line]
        assert not graph.callouts
        compiled(x, index)
        assert peak_bytes(lambda: compiled(x, index)) < 200 * 64 * 4 + 10 * 16 * 64 * 4
