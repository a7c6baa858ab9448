"""Small kernels that do the same to other tensors run as one, and nothing that depends on another is taken along."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Graph, Phase, Role
from bridge.ledger import Ledger
from bridge.options import Options
from bridge.pipeline import compile_graph

Function = Callable[..., tuple[torch.Tensor, ...]]


def run(function: Function, targets: dict[int, int], *given: torch.Tensor) -> CompiledGraph:
    """Compile a function, compare what it computes with eager, and give the program. targets: input by result."""
    args = [tensor.clone(memory_format=torch.preserve_format) for tensor in given]
    wanted = function(*given)
    into = tuple(targets.get(at) for at in range(len(wanted)))
    module = make_fx(function, tracing_mode="fake")(*args)
    outputs = tuple(Role.OUTPUT if at is None else Role.MUTATED for at in into)
    graph = Graph("graph_0", Phase.STEP, module, (Role.INPUT,) * len(args), outputs, (), into)
    compiled = compile_graph(graph, Options(), Ledger())
    returned = iter(compiled.run(list(args)))
    for at, value in zip(into, wanted, strict=True):
        torch.testing.assert_close(next(returned) if at is None else args[at], value)
    return compiled


def momentum(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Parameters, gradients and momenta by thirds, and a rate: the new parameters, then the new momenta."""
    *tensors, rate = given
    count = len(tensors) // 3
    parameters, gradients, momenta = (tensors[n * count : (n + 1) * count] for n in range(3))
    momenta = [m * 0.9 + g for m, g in zip(momenta, gradients, strict=True)]
    return *(p - rate.exp() * m for p, m in zip(parameters, momenta, strict=True)), *momenta


SIZES = {
    "small": [(3, 5), (64,), (1,), (130,), (65, 2)],
    "shared by threads": [(300, 70), (1,), (17,), (150, 150), (128,), (99, 300)],
    "one of many elements": [(1,), (7,)],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_updates_of_any_length_are_one_kernel(sizes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    tensors = [torch.randn(size, dtype=dtype) for _ in range(3) for size in sizes]
    count = len(sizes)
    targets = {n: n if n < count else n + count for n in range(2 * count)}
    compiled = run(momentum, targets, *tensors, torch.tensor(-2.0, dtype=dtype))
    assert compiled.kernel_calls == 1
    assert "empty(" not in compiled.source


def test_other_layouts_are_walked_as_they_lie() -> None:
    tensors = [torch.randn(size).t() for size in [(8, 5), (33, 20)] * 3]
    assert run(momentum, {0: 0, 1: 1, 2: 4, 3: 5}, *tensors, torch.tensor(-1.0)).kernel_calls == 1


def test_integers_and_floats_are_apart() -> None:
    def counted(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a + 1, b + 1, c + 1, d + 1

    given = [torch.randn(40), torch.randn(7), torch.arange(9), torch.arange(30)]
    assert run(counted, {}, *given).kernel_calls == 2


def test_what_reads_a_result_comes_after_it() -> None:
    def chain(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = (a * 2 + 1).exp()
        product = first @ b
        return first, (product * 2 + 1).exp()

    assert run(chain, {}, torch.randn(4, 4), torch.randn(4, 4)).kernel_calls >= 2


def test_what_is_written_over_was_read_before() -> None:
    """The second line replaces what a product between the two reads."""

    def turned(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a * 3 + 1, b @ c, b * 3 + 1

    run(turned, {0: 0, 2: 1}, torch.randn(300, 300), torch.randn(300, 300), torch.randn(300, 300))


def test_each_reads_what_the_other_replaces() -> None:
    def swapped(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return b * 2, a * 2

    run(swapped, {0: 0, 1: 1}, torch.randn(5, 6), torch.randn(5, 6))


def test_large_kernels_stay_alone() -> None:
    def doubled(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a * 2, b * 2

    assert run(doubled, {}, torch.randn(1 << 18), torch.randn(1 << 19)).kernel_calls == 2
    assert run(doubled, {}, torch.randn(1 << 8), torch.randn(1 << 9)).kernel_calls == 1
