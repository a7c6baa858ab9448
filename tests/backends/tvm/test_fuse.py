"""What becomes one kernel, and that grouping changes no value."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import bridge
from bridge.ir.compiled import CompiledGraph


def graphs_of(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> dict[str, CompiledGraph]:
    """The compiled graphs by phase, after a run that was compared with eager."""
    torch._dynamo.reset()
    compiled = bridge.compile(function)
    mine = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    found, wanted = compiled(*mine), function(*args)
    torch.testing.assert_close(found, wanted)
    if found.requires_grad:
        weight = torch.linspace(0.5, 1.5, found.numel()).reshape(found.shape)
        found.backward(weight)
        wanted.backward(weight)
        for a, b in zip(mine, args, strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    return {g.graph.phase.value: g for g in bridge.inspect(compiled).graphs}


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


@pytest.mark.parametrize(
    ("function", "shapes", "forward", "backward"),
    [
        (lambda x, w, b: F.gelu(F.layer_norm(x, (48,), w, b)), [(6, 7, 48), (48,), (48,)], 1, 2),
        (lambda x: F.softmax(x * 2, -1), [(5, 33)], 1, 1),
        (lambda x: F.log_softmax(x, 1), [(4, 9, 5)], 1, 1),
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, True).relu(), [(4, 6, 5, 5), (6,), (6,)], 1, 1),
        (lambda x, y: (x + y.transpose(0, 1)).sin() * 3, [(8, 5), (5, 8)], 1, 1),
    ],
    ids=["layer_norm_gelu", "softmax", "log_softmax", "batch_norm_relu", "transposed"],
)
def test_number_of_kernels(function: Callable, shapes: list[tuple[int, ...]], forward: int, backward: int) -> None:
    graphs = graphs_of(function, *(leaf(*shape) for shape in shapes))
    assert graphs["forward"].kernel_calls <= forward
    assert graphs["backward"].kernel_calls <= backward
    assert not graphs["forward"].callouts
    assert not graphs["backward"].callouts


OPS: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x * y.sigmoid(),
    lambda x, y: x - y.mean(-1, keepdim=True),
    lambda x, y: x + y.sum(0, keepdim=True),
    lambda x, y: torch.where(x > y, x, y * 0.5),
    lambda x, y: F.softmax(x, -1) * y,
    lambda x, y: x.transpose(0, 1).reshape(x.shape) + y,
    lambda x, y: x.flip(0) + y.amax(),
    lambda x, y: torch.cat([y[1:], x[:1]]),
]


@settings(max_examples=12, deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.sampled_from([1, 3, 8, 17, 40])),
    st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6),
)
def test_any_chain_of_ops_is_eagers(shape: tuple[int, int], chain: list[tuple[Callable, int, int]]) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values = [x, y]
        for op, a, b in chain:
            values.append(op(values[a % len(values)], values[b % len(values)]))
        return values[-1]

    torch.manual_seed(0)
    with torch.no_grad():
        graphs_of(run, torch.randn(*shape), torch.randn(*shape))


def unrolled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    for _ in range(6):
        x = (x @ weight).tanh()
    return x


def test_terms_of_a_gradient_are_added_where_they_are_made() -> None:
    """So that a weight that is used at every step of a loop has one gradient in memory, and not one a step."""
    graphs = graphs_of(unrolled, leaf(3, 8), leaf(8, 8))
    source = graphs["backward"].source
    assert source.count("(8, 8), (8, 1), torch_float32)") == 1  # the first term; the others are added in its place
    assert not re.search(r"mm_\d+ = empty\(\(8, 8\)", source.split("add", 1)[1])


def test_a_sum_that_its_last_term_cannot_hold_is_taken_at_once() -> None:
    def transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = x @ x
        for n in range(1, 5):
            total = total + (y * n @ y).t()
        return total.tanh() + total.sigmoid()

    graphs_of(transposed, leaf(8, 8), leaf(8, 8))


def test_a_term_that_somebody_else_reads_stays() -> None:
    def read_twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first, second, third = x @ y, y @ x, x.t() @ y
        return (first + second + third).tanh() + second.sin() + (first + third).cos()

    graphs_of(read_twice, leaf(8, 8), leaf(8, 8))
