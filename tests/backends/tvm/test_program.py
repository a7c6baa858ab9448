"""The program does what the graph says: by the fx interpreter, by TVM's own machine, and by its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import tvm_ffi
from torch import fx, nn
from torch.nn import functional as F

import bridge
from bridge.backends.tvm.lower import CALLOUT, Lowered, lower
from bridge.backends.tvm.machine import machine
from bridge.ir.callout import callout, callout_inputs
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Phase

GOLDEN = Path(__file__).parent / "golden"


def inference(function: Callable[..., object], *args: torch.Tensor) -> CompiledGraph:
    """The one graph of a function, after a run that was compared with eager, layout and all."""
    torch._dynamo.reset()
    compiled = bridge.compile(function)
    with torch.no_grad():
        found, wanted = compiled(*args), function(*args)
    torch.testing.assert_close(found, wanted, check_stride=True, equal_nan=True)
    (graph,) = bridge.inspect(compiled).graphs
    assert graph.runs[0] == 1
    assert graph.kernel_calls > 0
    assert not [event for event in compiled.ledger if event.kind != "laid out anew"]
    return graph


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One head of attention with a norm before it: rows, columns, views, a product of the library, two small ones."""
    h = F.layer_norm(x, (x.shape[-1],))
    q, k, v = (h @ w).chunk(3, -1)
    scores = (q @ k.transpose(-1, -2)) * 0.25
    return x + F.softmax(scores, -1) @ v


def register(lowered: Lowered) -> None:
    """Give TVM's machine the call-outs of a program, each with one tensor as its result."""
    for node in lowered.graph.nodes:
        if lowered.ways.get(node.name, "generated") != "generated":
            tvm_ffi.register_global_func(CALLOUT + node.name, packed(node), override=True)


def packed(node: fx.Node) -> Callable[..., None]:
    function, _ = callout(node)
    count = len(callout_inputs(node))

    def call(*tensors: object) -> None:
        *inputs, output = [torch.from_dlpack(t) for t in tensors]
        output.copy_(function(*inputs[:count]))

    return call


def test_interpreter_and_machine_agree() -> None:
    x, w = torch.randn(4, 6, 16), torch.randn(16, 48)
    graph = inference(attention, x, w)
    inputs = [x, w] if tuple(graph.graph.nodes[0].meta["val"].shape) == (4, 6, 16) else [w, x]
    (mine,) = graph.run(list(inputs))
    (interpreted,) = fx.Interpreter(graph.graph.module).run(*inputs)
    torch.testing.assert_close(mine, interpreted)
    lowered = lower(graph.graph, graph.placement)
    register(lowered)
    (virtual,) = machine(lowered.module)(inputs)
    torch.testing.assert_close(mine, torch.from_dlpack(virtual), rtol=1e-4, atol=1e-4)  # it sums in another order


@pytest.mark.parametrize("name", ["program", "relax"])
def test_text(name: str) -> None:
    graph = inference(attention, torch.randn(4, 6, 16), torch.randn(16, 48))
    if name == "program":
        text = re.sub(r"^ *#.*\n", "", graph.source, flags=re.MULTILINE)
    else:
        text = lower(graph.graph, graph.placement).module["main"].script() + "\n"
    path = GOLDEN / f"attention.{name}.txt"
    assert text == path.read_text(), f"if the change is meant, write the new text to {path}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(300)[3:259].view(8, 32),
        lambda: torch.randn(32, 8).t(),
        lambda: torch.randn(8, 64)[:, ::2],
        lambda: torch.randn(8, 1).expand(8, 32),
        lambda: torch.randn(1, 32),
        lambda: torch.randn(0, 32),
        lambda: torch.tensor(1.5),
        lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        lambda: torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45]),
    ],
    ids=["offset", "transposed", "strided", "expanded", "size_one", "empty", "scalar", "channels_last", "special"],
)
def test_inputs_of_every_layout(make: Callable[[], torch.Tensor]) -> None:
    x = make()
    torch._dynamo.reset()
    compiled = bridge.compile(lambda x: (x.sin() * 2, x.exp().sum(), x.relu() + x))
    with torch.no_grad():
        found = compiled(x)
        wanted = x.sin() * 2, x.exp().sum(), x.relu() + x
    torch.testing.assert_close(found, wanted, check_stride=x.numel() > 1, equal_nan=True)
    assert bridge.inspect(compiled).graphs[0].runs[0] == 1
    assert not list(compiled.ledger)


def test_a_result_is_fresh_memory_unless_it_is_a_view() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y.clone(), y.t(), x.clone()

    x = torch.randn(4, 5)
    compiled = bridge.compile(both)
    with torch.no_grad():
        y, copy, view, own = compiled(x)
    assert bridge.inspect(compiled).graphs[0].kernel_calls > 0
    y.zero_()
    assert copy.abs().sum() > 0
    assert view.abs().sum() == 0
    own.zero_()
    assert x.abs().sum() > 0


def test_inputs_are_left_as_they_were() -> None:
    x = torch.randn(6, 7)
    before = x.clone()
    inference(lambda x: F.softmax(x, -1) + x.cumsum(0), x)
    assert torch.equal(x, before)


def test_sizes_may_change() -> None:
    compiled = bridge.compile(lambda x, w: attention(x, w).sum(1))
    w = torch.randn(16, 48)
    with torch.no_grad():
        for shape in [(2, 6, 16), (3, 9, 16), (5, 33, 16)]:
            x = torch.randn(*shape)
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(x, 1)
            torch.testing.assert_close(compiled(x, w), attention(x, w).sum(1), rtol=1e-4, atol=1e-4)
    graphs = bridge.inspect(compiled).graphs
    assert sum(graph.runs[0] for graph in graphs) == 3
    assert len(graphs) == 1
    assert graphs[0].kernel_calls > 0
    assert "fallback" not in set(graphs[0].placement.values())


def test_everything_can_be_generated() -> None:
    compiled = bridge.compile(attention, library=False)
    x, w = torch.randn(4, 6, 16), torch.randn(16, 48)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, w), attention(x, w))
    (graph,) = bridge.inspect(compiled).graphs
    assert not graph.callouts
    assert set(graph.placement.values()) == {"generated"}


def test_a_node_may_be_called_as_what_the_program_uses() -> None:
    """torch names a node after its op, and one of them is called `empty`."""

    def f(x: torch.Tensor) -> torch.Tensor:
        mask = torch.empty(x.shape, dtype=x.dtype).fill_(0.5).bernoulli_(1.0)
        return (x * mask).relu().sum(0)

    graph = inference(f, torch.randn(3, 4))
    assert "empty" in {node.name for node in graph.graph.nodes}


def test_a_kernel_reads_one_of_several_results_that_has_no_dimensions() -> None:
    graph = inference(lambda x: torch.linalg.slogdet(x)[1].sin() + 1, torch.eye(3) * 2)
    assert len(graph.callouts) == 1
    assert graph.kernel_calls == 1


def test_one_of_several_results_goes_when_it_was_read() -> None:
    """A tuple of results would hold the gradient of an image until those of all weights are given out."""
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    compiled = bridge.compile(layers)
    compiled(torch.randn(2, 3, 12, 12)).sum().backward()
    (backward,) = (g for g in bridge.inspect(compiled).graphs if g.graph.phase is Phase.BACKWARD)
    lines = [line.strip() for line in backward.source.splitlines()]
    calls = [at for at, line in enumerate(lines) if "= call_convolution_backward" in line]
    assert len(calls) == 3
    for call, following in zip(calls, [*calls[1:], len(lines)], strict=True):
        (name, _) = lines[call].split(" = ")
        assert f"del {name}" in lines[call:following]
