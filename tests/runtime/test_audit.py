"""An audit finds everything that ran outside of what was compiled, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import bridge
from bridge.runtime.audit import Audit, Uncaptured, _is_engines


class Broken(nn.Module):
    """A linear layer, a graph break, and a sequence that only plain Python gets through."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.rest(x).sum()


class Summed(nn.Module):
    """An MLP with a norm whose result is a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).pow(2).mean()


X = torch.linspace(-1, 1, 32).reshape(8, 4)


def trained(compiled: Any, *args: Any) -> Callable[[], None]:
    def step() -> None:
        compiled(*args).backward()

    return step


def ops(result: Audit) -> set[str]:
    return {item.op for item in result.uncaptured}


def test_a_step_that_is_captured_whole_is_clean() -> None:
    model = Summed()
    compiled = bridge.compile(model, "eager")
    result = bridge.audit(trained(compiled, X))
    assert result.ok, str(result)
    assert result.uncaptured == ()
    assert result.missing == {}
    assert result.fallback["aten.mm.default"] + result.fallback["aten.addmm.default"] == 5
    assert result.engine["aten.copy_.default"] == 3, "the running statistics"
    assert result.engine["aten.add_.Tensor"] == len(list(model.parameters())), "the second step accumulates"


def test_spans_that_an_optimizer_marks_compute_nothing() -> None:
    compiled = bridge.compile(Summed(), "eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        compiled(X).backward()
        optimizer.step()

    assert ops(bridge.audit(step)) == {"aten.add_.Tensor"}


def test_it_counts_one_step_of_two() -> None:
    compiled = bridge.compile(Summed(), "eager")
    bridge.audit(trained(compiled, X))
    assert [graph.runs[0] for graph in bridge.inspect(compiled).graphs] == [2, 2]


def test_nothing_compiled_is_not_clean() -> None:
    result = bridge.audit(lambda: None)
    assert not result.ok


def test_an_eager_detour_is_found_with_its_line() -> None:
    compiled = bridge.compile(Summed(), "eager")

    def step(x: torch.Tensor) -> None:
        loss = compiled(x)
        (loss * loss.sin()).backward()

    result = bridge.audit(step, X)
    assert not result.ok
    assert {"aten.sin.default", "aten.mul.Tensor", "aten.cos.default"} <= ops(result)
    (line,) = {item.source for item in result.uncaptured if item.op == "aten.sin.default"}
    assert line.endswith("in step: (loss * loss.sin()).backward()")


def test_a_graph_break_and_the_modules_behind_it_are_found() -> None:
    compiled = bridge.compile(Broken(), "eager")
    compiled(X).backward()
    assert bridge.inspect(compiled).ledger.select(kind="uncaptured")
    assert bridge.audit(trained(compiled, X)).ok, "both halves are captured: broken, but nothing ran outside"


def test_a_module_with_a_full_backward_hook_is_captured_inside_of_it() -> None:
    model, seen = Broken(), []
    model.rest.register_full_backward_hook(lambda module, into, out: seen.append(into[0]))
    assert bridge.audit(trained(bridge.compile(model, "eager"), X)).ok
    trained(model, X)()
    torch.testing.assert_close(seen[0], seen[-1])
    assert len(seen) == 3, "two steps of the audit and one in eager"


class Given(nn.Module):
    """A loop that ends where the data say so, which Dynamo gives up as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = self.norm(x)
            if x.sum() > 1e9:
                break
        return x.exp().sum()


def test_a_module_of_torchs_is_captured_where_the_frame_around_it_is_not() -> None:
    result = bridge.audit(trained(bridge.compile(Given(), "eager"), X))
    assert "aten.exp.default" in ops(result)
    assert not any("norm" in op for op in ops(result))
    assert any("norm" in op for op in result.fallback) or "aten.rsqrt.default" in result.fallback


def test_a_recurrent_module_that_is_skipped_is_found() -> None:
    """Under torch.compile itself, nn.LSTM is skipped; the audit sees that, whoever did the compiling."""
    lstm = nn.LSTM(4, 3)
    skipped = torch.compile(lstm, backend="eager")
    result = bridge.audit(lambda: skipped(X)[0].sum().backward())
    assert not result.ok
    assert result.uncaptured

    def captured(x: torch.Tensor) -> torch.Tensor:
        return lstm(x)[0].sum()

    assert bridge.audit(trained(bridge.compile(captured, "eager"), X)).ok


def test_the_recompile_limit_is_found() -> None:
    compiled = bridge.compile(lambda x: x.sin().sum(), "eager", dynamic=False)
    inputs = [torch.randn(n, requires_grad=True) for n in range(2, 14)]
    for x in inputs:
        compiled(x)
    assert bridge.audit(trained(compiled, inputs[0])).ok
    assert "aten.sin.default" in ops(bridge.audit(trained(compiled, inputs[-1])))


def test_several_compiled_objects_in_one_step() -> None:
    first, second = bridge.compile(nn.Linear(4, 4), "eager"), bridge.compile(Summed(), "eager")
    result = bridge.audit(lambda: second(first(X)).backward())
    assert result.ok, str(result)


def test_a_call_that_no_program_declared_is_found() -> None:
    compiled = bridge.compile(Summed(), "eager")
    compiled(X).backward()
    graphs = bridge.inspect(compiled).graphs
    forward = graphs[0]
    declared = tuple(callout for callout in forward.callouts if "aten.relu.default" not in callout.ops)
    graphs[0] = replace(forward, callouts=declared, kernel_calls=2)
    result = bridge.audit(trained(compiled, X))
    assert result.kernels == 2
    assert result.uncaptured == (Uncaptured("aten.relu.default", 1, "inside a program"),)


def test_it_prints_what_it_found() -> None:
    text = str(Audit(3, {"aten.mm.default": 2}, {}, {}, (Uncaptured("aten.sin.default", 4, "a.py:1 in f"),), {}))
    assert "generated kernels called: 3" in text
    assert "library: 2 aten.mm.default" in text
    assert "fallback: none" in text
    assert "   4 aten.sin.default  a.py:1 in f" in text


def test_a_call_from_the_engines_own_thread_has_no_frames_and_is_nobodys() -> None:
    assert not _is_engines([])
