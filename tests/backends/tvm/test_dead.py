"""A kernel writes over what it is the last to read, and over nothing that anybody reads later."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import bridge
from bridge import generation
from bridge.backends.tvm.build import Built, build
from bridge.backends.tvm.kept import Entry
from bridge.backends.tvm.lowered import Lowered, tensor_outputs
from bridge.ir.callout import callout_inputs
from bridge.ir.views import root_of
from bridge.options import Options

SIDE = 32
"""Of the matrices: their product is a library's."""


Programs = list[tuple[Lowered, Built]]


@contextmanager
def noting() -> Iterator[Programs]:
    """What is built inside, and of what."""
    found: Programs = []

    def noted(
        lowered: Lowered, options: Options, apart: Collection[str], careful: bool = False, entry: Entry | None = None
    ) -> Built:
        built = build(lowered, options, apart, careful)
        found.append((lowered, built))
        return built

    with mock.patch.object(generation, "build", noted):
        yield found


@pytest.fixture
def programs() -> Iterator[Programs]:
    """What was built since the test began."""
    with noting() as found:
        yield found


class Memory:
    """Which value lies in which memory while a program runs, as its steps tell."""

    def __init__(self, lowered: Lowered) -> None:
        self._nodes = {node.name: node for node in lowered.graph.nodes}
        self._place: dict[str, str] = {}
        self._holds: dict[str, str] = {}

    def root(self, name: str) -> str:
        node = self._nodes.get(name)
        return name if node is None else root_of(node).name

    def write(self, name: str, place: str | None = None) -> None:
        self._place[name] = name if place is None else self._place[self.root(place)]
        self._holds[self._place[name]] = name

    def read(self, name: str) -> None:
        root = self.root(name)
        if root in self._place:  # what is no value has none
            assert self._holds[self._place[root]] == root, f"{root} was written over and is read"


def check(lowered: Lowered, built: Built) -> int:
    """Walk through a program's steps. How many results lie where another value was."""
    memory, nodes = Memory(lowered), {node.name: node for node in lowered.graph.nodes}
    given = [node.name for node in nodes.values() if node.op == "placeholder"]
    for name in given:
        memory.write(name)
    again = 0
    for step in built.steps:
        if "call" in step:
            for node in callout_inputs(nodes[step["call"]]):
                memory.read(node.name)
            memory.write(step["call"])
            for pick in (user for user in nodes[step["call"]].users if user.target is operator.getitem):
                memory.write(pick.name)
            continue
        over = [output["into"] for output in step["outputs"] if "into" in output]
        assert len({memory.root(name) for name in over}) == len(over)
        for name in (*step["inputs"], *over):
            memory.read(name)
        for output in step["outputs"]:
            memory.write(output["name"], output.get("into"))
        again += len(over)
    for name in (*given, *(node.name for node in tensor_outputs(lowered.graph))):
        memory.read(name)
    return again


def in_place(programs: Programs) -> int:
    return sum(check(lowered, built) for lowered, built in programs)


def same(function: Callable[..., object], *args: torch.Tensor, **options: object) -> None:
    """The function gives what eager gives, and leaves its arguments as they were."""
    torch._dynamo.reset()
    mine = [a.clone() for a in args]
    with torch.no_grad():
        found = bridge.compile(function, **options)(*mine)  # type: ignore[arg-type]
        torch.testing.assert_close(found, function(*args), rtol=1e-4, atol=1e-4, check_stride=True)
    torch.testing.assert_close(mine, list(args), rtol=0, atol=0)


def square() -> torch.Tensor:
    return torch.randn(SIDE, SIDE) / 4


CASES: dict[str, tuple[Callable[..., object], int]] = {
    "pointwise": (lambda x, y: (x @ y).relu(), 1),
    "a row after its sums": (lambda x, y: F.softmax(x @ y, -1), 1),
    "another shape": (lambda x, y: (x @ y).view(4, 8, SIDE) * 2, 1),
    "what it is added to": (lambda x, y: (x @ y) @ (x @ y).sin() + y, 2),
    "other elements": (lambda x, y: (lambda z: z + z.t())(x @ y), 0),
    "given out": (lambda x, y: (lambda z: (z, z.relu()))(x @ y), 0),
    "given out as a view": (lambda x, y: (lambda z: (z.t()[1:], z.relu()))(x @ y), 0),
    "read later": (lambda x, y: (lambda z: z.relu() @ z)(x @ y), 0),
    "an argument": (lambda x, y: (x.relu(), y + 1), 0),
    "of another type": (lambda x, y: (x @ y) > 0, 0),
    "of another size": (lambda x, y: (x @ y).sum(0), 0),
    "read by another name": (lambda x, y: (lambda z: z + z.view(torch.int16)[:, :SIDE].float())(x @ y), 0),
}


@pytest.mark.parametrize(("function", "count"), CASES.values(), ids=list(CASES))
def test_what_is_written_over(programs: Programs, function: Callable[..., object], count: int) -> None:
    same(function, square(), square())
    assert in_place(programs) == count


def test_a_view_that_a_kernel_stores(programs: Programs) -> None:
    """It lies in memory of its own, whatever it is a view of."""

    def sums(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shown = ((x @ y).abs() * 2 + 1).view(torch.int32)
        return shown.sum(0), shown.sum(1)

    x, y = square(), square()
    with torch.no_grad():
        compiled = bridge.compile(sums)
        torch.testing.assert_close(compiled(x, y), sums(x, y))
    assert not compiled.ledger
    in_place(programs)


def test_sizes_may_change(programs: Programs) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.softmax(x @ y, -1) @ y + x

    compiled = bridge.compile(function)
    with torch.no_grad():
        for rows in (40, 2, 77):
            x, y = torch.randn(rows, SIDE), square()
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(compiled(x, y), function(x, y))
    assert in_place(programs) == 2


def test_gradients_of_what_was_saved(programs: Programs) -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x @ y) @ y + x, (SIDE,)).square().sum()

    args = [square().requires_grad_() for _ in range(2)]
    mine = [a.detach().clone().requires_grad_() for a in args]
    loss(*args).backward()
    bridge.compile(loss)(*mine).backward()
    torch.testing.assert_close([a.grad for a in mine], [a.grad for a in args], rtol=1e-4, atol=1e-4)
    assert in_place(programs) > 0


OPS: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, y: x @ y,
    lambda x, y: torch.addmm(x, x, y),
    lambda x, y: x + y,
    lambda x, y: x.sin() * y.sigmoid(),
    lambda x, y: F.softmax(x, -1) - y,
    lambda x, y: x - y.mean(0, keepdim=True),
    lambda x, y: x.t() + y,
    lambda x, y: x.t(),
    lambda x, y: x.reshape(-1, 8).sin().view(x.shape) * y,
    lambda x, y: torch.cat([y[1:], x[:1]]),
    lambda x, y: x.cumsum(0) / SIDE + y,
]
CHAIN = st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=9)


@settings(max_examples=8, deadline=None)
@given(CHAIN, st.sets(st.integers(0, 8), max_size=3))
def test_any_program_reads_what_it_wrote(
    chain: list[tuple[Callable[..., torch.Tensor], int, int]], returned: set[int]
) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        values = [x, y]
        for op, a, b in chain:
            made = op(values[-1 - a % len(values)], values[-1 - b % len(values)])
            values.append(made / made.detach().abs().amax().clamp(min=1))
        return [values[-1], *(values[2 + n] for n in sorted(returned) if n < len(chain))]

    torch.manual_seed(0)
    with noting() as programs:
        same(run, square(), square())
    in_place(programs)
