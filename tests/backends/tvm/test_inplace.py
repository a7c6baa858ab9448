"""Results that are written over inputs: by a kernel where nobody reads the old value afterwards, else by a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from bridge.ir.joint import Graph, Phase, Role
from bridge.ledger import Ledger
from bridge.ledger.event import COPIED_BACK
from bridge.options import Options
from bridge.pipeline import compile_graph
from tests.backends.tvm.emulated import emulated

Function = Callable[..., tuple[torch.Tensor, ...]]


@pytest.fixture(autouse=True, params=["cpu", "gpu"])
def hardware(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kernels for a CPU, and those for a GPU, run on the CPU."""
    with emulated() if request.param == "gpu" else nullcontext():
        yield


def laid(tensor: torch.Tensor, shifted: bool) -> torch.Tensor:
    """A copy, which begins amiss if it is shifted."""
    if not shifted:
        return tensor.clone(memory_format=torch.preserve_format)
    return torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)


def run(
    function: Function, targets: tuple[int | None, ...], *given: torch.Tensor, shifted: bool = False
) -> tuple[int, str]:
    """Compile and run a function some of whose results replace inputs. How many were copied, and the program's text."""
    args = [laid(tensor, shifted) for tensor in given]
    module = make_fx(function, tracing_mode="fake")(*args)
    outputs = tuple(Role.OUTPUT if at is None else Role.MUTATED for at in targets)
    graph = Graph("graph_0", Phase.STEP, module, (Role.INPUT,) * len(args), outputs, (), targets)
    ledger = Ledger()
    compiled = compile_graph(graph, Options(), ledger)
    wanted = function(*given)
    versions = [tensor._version for tensor in args]
    returned = iter(compiled.run(list(args)))
    for at, value in zip(targets, wanted, strict=True):
        torch.testing.assert_close(next(returned) if at is None else args[at], value)
    for at, version in enumerate(versions):
        assert (args[at]._version > version) == (at in targets)
        if at not in targets:
            assert torch.equal(args[at], given[at])
    return len(ledger.select(kind=COPIED_BACK)), compiled.source


def momentum(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = m * 0.9 + g
    return p - 0.1 * m, m


@pytest.mark.parametrize("size", [(4, 8), (33, 7), (300, 200)])
def test_an_update_needs_no_memory(size: tuple[int, ...]) -> None:
    copied, source = run(momentum, (0, 2), *(torch.randn(size) for _ in range(3)))
    assert copied == 0
    assert "empty(" not in source


def test_the_layout_of_the_input_is_kept() -> None:
    given = [torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last) for _ in range(3)]
    assert run(momentum, (0, 2), *given)[0] == 0


def test_two_results_that_read_what_the_other_replaces() -> None:
    def swapped(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return b * 2, a * 3

    assert run(swapped, (0, 1), torch.randn(5, 6), torch.randn(5, 6))[0] == 1


def test_what_other_elements_are_computed_from_is_copied_back() -> None:
    def turned(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (a.t() + a,)

    assert run(turned, (0,), torch.randn(6, 6))[0] == 1


def test_a_later_reader_still_finds_the_old_value() -> None:
    def normed(w: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x / x.square().sum(1, keepdim=True).sqrt() * w
        gradient = (y * x).sum(0)
        z = torch.softmax(y * w, 1)
        return w - gradient, z @ x.t(), (z * w).sum(0)

    run(normed, (0, None, None), torch.randn(16), torch.randn(40, 16))


def test_a_result_of_a_library_is_copied_back() -> None:
    def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (a @ b,)

    assert run(product, (0,), torch.randn(300, 300), torch.randn(300, 300))[0] == 1


def test_single_elements_share_a_kernel() -> None:
    def counted(*steps: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(step + 1 for step in steps)

    copied, source = run(counted, tuple(range(5)), *(torch.tensor(float(n)) for n in range(5)))
    assert copied == 0
    assert sum(line.strip().startswith("k") for line in source.splitlines()) == 1


@pytest.mark.parametrize("size", [(40, 10), (7, 130), (513, 64), (2, 5)])
def test_an_update_by_a_sum_of_columns(size: tuple[int, int]) -> None:
    def of_bias(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, ...]:
        m = m * 0.9 + g.sum(0) / len(g)
        return p - 0.1 * m / (m.square() + 1).sqrt(), m

    assert run(of_bias, (0, 1), *torch.randn(2, size[1]).unbind(), torch.randn(size))[0] == 0


@pytest.mark.parametrize("size", [(3, 33), (64, 128)])
def test_an_update_by_the_norm_of_a_row(size: tuple[int, int]) -> None:
    def normed(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        norm = p.square().sum(1, keepdim=True).sqrt()
        return p * norm.reciprocal() - g, m + norm.squeeze(1) * p.amax(1)

    assert run(normed, (0, 2), *torch.randn(2, *size).unbind(), torch.randn(size[0]))[0] == 0


def test_what_begins_amiss_is_updated_too() -> None:
    assert run(momentum, (0, 2), *torch.randn(3, 64, 32).unbind(), shifted=True)[0] == 0
