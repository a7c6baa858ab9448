"""Capture gives every graph with its roles, leaves torch as it was, and tells the ledger what torch keeps to itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.ir.joint import Phase, Role
from bridge.ledger import DeadEnd
from bridge.runtime.compiled import Compilation


class Net(nn.Module):
    """A linear layer, dropout and a norm with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.drop(self.linear(x))).relu()


class Broken(nn.Module):
    """A module that Dynamo ends a graph in."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).sin()
        torch._dynamo.graph_break()
        return self.linear(y).cos()


def interpreted(subject: Any, **options: Any) -> tuple[Any, Compilation]:
    compiled = bridge.compile(subject, "eager", **options)
    return compiled, bridge.inspect(compiled)


def runs(compilation: Compilation) -> list[int]:
    return [graph.runs[0] for graph in compilation.graphs]


def step(model: Callable[..., Any], x: torch.Tensor, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """The result under a seed and the generator's state after it; gradients are left where they belong."""
    torch.manual_seed(seed)
    result = model(x)
    result.pow(2).sum().backward()
    return result.detach(), torch.get_rng_state()


def test_a_training_step_is_eagers_to_the_bit() -> None:
    model = Net()
    reference = copy.deepcopy(model)
    compiled, compilation = interpreted(model)
    x = torch.randn(8, 4)
    for seed in range(3):
        got, state = step(compiled, x, seed)
        expected, expected_state = step(reference, x, seed)
        assert torch.equal(got, expected)
        assert torch.equal(state, expected_state)
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters()))  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), reference.buffers()))
    assert runs(compilation) == [3, 3]


def test_inputs_and_results_have_roles_and_the_users_names() -> None:
    compiled, compilation = interpreted(Net())
    step(compiled, torch.randn(8, 4))
    forward, backward = (compiled.graph for compiled in compilation.graphs)
    roles = dict(zip(forward.input_names, forward.inputs))
    assert roles["linear.weight"] is Role.PARAMETER
    assert roles["norm.running_mean"] is Role.BUFFER
    assert roles["args[0]"] is Role.INPUT
    assert forward.outputs[:4] == (Role.MUTATED, Role.MUTATED, Role.MUTATED, Role.OUTPUT)
    assert set(forward.outputs[4:]) == {Role.SAVED}
    assert backward.inputs[-1] is Role.TANGENT
    assert Role.SAVED in backward.inputs
    assert set(backward.outputs) == {Role.GRADIENT}
    assert forward.name == backward.name == "graph_0"
    assert (forward.phase, backward.phase) == (Phase.FORWARD, Phase.BACKWARD)


def test_the_joint_graph_is_kept_whole() -> None:
    compiled, compilation = interpreted(Net())
    step(compiled, torch.randn(8, 4))
    (joint,) = compilation.joints
    assert joint.phase is Phase.JOINT
    assert joint.outputs[: joint.forward_outputs].count(Role.MUTATED) == 3
    assert set(joint.outputs[joint.forward_outputs :]) == {Role.GRADIENT}
    assert joint.inputs.count(Role.TANGENT) == 1


def test_sizes_that_may_change_are_inputs_of_their_own() -> None:
    compiled, compilation = interpreted(Net(), dynamic=True)
    for batch in (3, 5, 7):
        step(compiled, torch.randn(batch, 4))
    forward, backward = (compiled.graph for compiled in compilation.graphs)
    assert Role.SIZE in forward.inputs
    assert Role.SIZE in backward.inputs
    assert not compilation.ledger.select(dead_end=DeadEnd.DYNAMIC_SHAPE)


def test_the_sizes_of_another_model_are_no_change() -> None:
    for rows in (3, 5):
        compiled = bridge.compile(nn.Linear(4, 4), "eager")
        compiled(torch.ones(rows, 4))
        (graph,) = bridge.inspect(compiled).graphs
        assert Role.SIZE not in graph.graph.inputs


def test_inference_training_and_frozen_parameters_are_programs_of_their_own() -> None:
    model = Net()
    compiled, compilation = interpreted(model)
    x = torch.randn(8, 4)
    with torch.no_grad():
        compiled(x)
    step(compiled, x)
    compiled.eval()
    step(compiled, x)
    model.linear.requires_grad_(False)
    step(compiled, x)
    phases = [compiled.graph.phase for compiled in compilation.graphs]
    assert phases == [Phase.INFERENCE, *[Phase.FORWARD, Phase.BACKWARD] * 3]
    assert runs(compilation) == [1] * 7
    assert torch.equal(compiled(x), model(x))


def test_what_is_copied_back_is_an_event_with_its_bytes() -> None:
    compiled, compilation = interpreted(Net())
    step(compiled, torch.randn(8, 4))
    events = {event.op: event for event in compilation.ledger.select(kind="copied back")}
    assert set(events) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert events["norm.running_mean"].bytes == 16
    assert events["norm.num_batches_tracked"].bytes == 8
    assert events["norm.running_mean"].dead_end is DeadEnd.INPLACE_OPTIMIZER
    assert "in forward: return self.norm(" in events["norm.running_mean"].source


def test_a_changed_argument_is_changed_for_the_caller() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sin()

    compiled, compilation = interpreted(double)
    x = torch.arange(4.0)
    assert torch.equal(compiled(x), (2 * torch.arange(4.0)).sin())
    assert torch.equal(x, 2 * torch.arange(4.0))
    (event,) = compilation.ledger.select(kind="copied back")
    assert event.phase == "inference"


def test_a_graph_break_is_told_with_its_reason_and_line() -> None:
    model = Broken()
    compiled, compilation = interpreted(model)
    x = torch.randn(3, 4)
    assert torch.equal(compiled(x), model(x))
    (event,) = compilation.ledger.select(kind="uncaptured")
    assert event.op == "graph break"
    assert "torch._dynamo.graph_break()" in event.detail
    assert event.source.endswith("in forward: torch._dynamo.graph_break()")
    assert compilation.placement["forward"]["uncaptured"] == 1
    assert [compiled.graph.name for compiled in compilation.graphs[:2]] == ["graph_0", "graph_1"]


def test_many_instances_of_a_class_do_not_use_up_one_limit() -> None:
    """Dynamo gives a function up for all instances after eight, and a broken graph has frames that they share."""
    x = torch.randn(3, 4)
    for model in [Broken() for _ in range(12)]:
        compiled, compilation = interpreted(model)
        compiled(x)
        assert runs(compilation) == [1, 1]
        assert [event.op for event in compilation.ledger] == ["graph break"]


def test_compiling_again_for_new_sizes_is_a_dead_end_and_for_a_new_mode_is_not() -> None:
    compiled, compilation = interpreted(Net(), dynamic=False)
    step(compiled, torch.randn(8, 4))
    compiled.eval()
    step(compiled, torch.randn(8, 4))
    assert not compilation.ledger.select(dead_end=DeadEnd.DYNAMIC_SHAPE)
    step(compiled, torch.randn(6, 4))
    (event,) = compilation.ledger.select(dead_end=DeadEnd.DYNAMIC_SHAPE)
    assert event.kind == "recompiled"
    assert "expected 8, actual 6" in event.detail


def test_the_recompile_limit_does_not_pass_in_silence() -> None:
    compiled, compilation = interpreted(torch.sin, dynamic=False)
    for size in range(2, 14):
        assert torch.equal(compiled(torch.ones(size)), torch.ones(size).sin())
    (event,) = [e for e in compilation.ledger.select(kind="uncaptured") if e.op == "recompile limit"]
    assert event.dead_end is DeadEnd.DYNAMIC_SHAPE
    assert "actual 10" in event.detail
    assert len(compilation.graphs) == torch._dynamo.config.recompile_limit


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules_are_captured_for_us_alone(kind: type[nn.Module]) -> None:
    model, x = kind(4, 5, num_layers=2), torch.randn(3, 2, 4)
    compiled, compilation = interpreted(model)
    torch.testing.assert_close(compiled(x)[0], model(x)[0], rtol=1e-5, atol=1e-6)
    assert runs(compilation) == [1]
    assert not torch._dynamo.config.allow_rnn
    assert torch._dynamo.config.skip_nnmodule_hook_guards
    assert torch.backends.mkldnn.enabled

    graphs: list[Any] = []

    def others(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    torch.compile(kind(4, 5), backend=others)(x)
    assert graphs == []


def test_switching_dynamo_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    compiled, compilation = interpreted(Net())
    step(compiled, torch.randn(8, 4))
    (event,) = compilation.ledger.select(kind="uncaptured")
    assert "TORCHDYNAMO_DISABLE" in event.detail


def test_attention_has_the_right_gradient() -> None:
    """The one op of core ATen whose decomposition silently breaks its own gradient."""
    inputs: Any = [torch.randn(2, 3, 8, 4, requires_grad=True) for _ in range(3)]
    compiled, compilation = interpreted(F.scaled_dot_product_attention)
    got = torch.autograd.grad(compiled(*inputs, is_causal=True).sum(), inputs)
    expected = torch.autograd.grad(F.scaled_dot_product_attention(*inputs, is_causal=True).sum(), inputs)
    assert runs(compilation) == [1, 1]
    for one, other in zip(got, expected):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("fault", [IndexError("tuple index out of range"), AssertionError("no")])
def test_a_fault_of_dynamos_costs_the_frame(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    from torch._dynamo import convert_frame

    def failing(*args: Any, **kwargs: Any) -> None:
        raise fault

    monkeypatch.setattr(convert_frame, "_compile", failing)
    compiled = bridge.compile(lambda x: x * 2, target="eager")
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    events = compiled.ledger.select(dead_end="api_instability", kind="uncaptured")
    assert all(str(fault) in event.detail for event in events)
    assert "test_capture.py" in events[-1].source


def test_a_mistake_of_the_users_is_raised_as_in_eager() -> None:
    compiled = bridge.compile(lambda x: x.sum(5), target="eager")
    with pytest.raises(IndexError, match="Dimension out of range"):
        compiled(torch.ones(3))
