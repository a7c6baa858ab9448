"""What capture takes for granted of AOTAutograd and Dynamo, asked of them directly.

No name of torch's moves without a word here: each failure says what changed and which file has to follow.
"""

from __future__ import annotations

import copy
import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx, nn

from bridge.frontends.torch import roles
from bridge.frontends.torch.adapters import Adapter, adapter_for
from bridge.frontends.torch.adapters.base import GraphBreak

DESCRIPTORS = "torch._functorch._aot_autograd.descriptors"
ROLES = "frontends/torch/roles.py"
BASE = "frontends/torch/adapters/base.py"


class Net(nn.Module):
    """Parameters, a buffer of a norm that changes, one that the module changes itself, and an input that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.count = nn.Buffer(torch.zeros(()))

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        seen.copy_(x.detach().sum(0))
        y = self.norm(self.linear(x))
        return y.relu() * self.count, y.detach().sum()


class Listens:
    """Takes down what the adapter tells."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.breaks: Counter[str] = Counter()

    def frame_begun(self, breaks: Counter[str]) -> None:
        self.breaks = breaks

    def guard_failed(self, reason: str) -> None:
        self.told.append(f"guard: {reason}")

    def frame_skipped(self, frame: Any, reason: str) -> None:
        self.told.append(f"skipped: {frame.f_code.co_name}")

    def frame_broken(self, frame: Any, reason: str) -> None:
        self.told.append(f"broken: {frame.f_code.co_name}")

    def frame_failed(self, frame: Any, error: Exception) -> None:
        self.told.append(f"failed: {error}")

    def switched_off(self) -> None:
        self.told.append("off")

    def limit_reached(self, frame: Any) -> None:
        self.told.append("limit")


class Captured:
    """A function captured by the adapter, whose graphs run as they are; and all that torch gave on the way."""

    def __init__(self, function: Callable[..., Any], dynamic: bool | None = False) -> None:
        self.adapter: Adapter = adapter_for(torch.__version__)[0]
        self.listener = Listens()
        self.split_with: dict[str, Any] = {}
        self.split_inputs: Any = None
        self.joint: fx.GraphModule | None = None
        self.forward: fx.GraphModule | None = None
        self.backward: fx.GraphModule | None = None
        self.broken: list[GraphBreak | None] = []
        self.call = self.adapter.compile(function, self._backend, dynamic, self.listener, True)

    def _backend(self, module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        self.broken.append(self.adapter.graph_break(module, self.listener.breaks))
        aot = self.adapter.aot(
            fw_compiler=self._keep("forward"),
            bw_compiler=self._keep("backward"),
            inference_compiler=self._keep("forward"),
            partition_fn=self._split,
            decompositions={},
        )
        return aot(module, examples)

    def _keep(self, name: str) -> Callable[..., Any]:
        def compiler(module: fx.GraphModule, examples: Any) -> Any:
            setattr(self, name, module)

            def run(inputs: list[Any]) -> Any:
                given = list(inputs)
                inputs.clear()
                return module(*given)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return compiler

    def _split(self, module: fx.GraphModule, inputs: Any, **more: Any) -> Any:
        self.joint, self.split_inputs, self.split_with = copy.deepcopy(module), inputs, dict(more)
        return min_cut_rematerialization_partition(module, inputs, **more)


@pytest.fixture(scope="module")
def captured() -> Captured:
    torch.manual_seed(0)
    made = Captured(Net())
    y, _ = made.call(torch.randn(5, 6), torch.zeros(6))
    y.sum().backward()
    assert made.joint is not None, "AOTAutograd calls no partition_fn: see Capture._splitter in capture.py"
    return made


def described(module: fx.GraphModule, op: str) -> list[Any]:
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    if op == "output":
        return list(output.meta.get("desc") or [])
    return [node.meta.get("desc") for node in module.graph.nodes if node.op == "placeholder"]


def kinds(descriptors: list[Any]) -> Counter[str]:
    return Counter(type(descriptor).__name__ for descriptor in descriptors)


@pytest.mark.parametrize("name", [*roles._OF_INPUT, *roles._OF_OUTPUT, "PlainAOTInput"])
def test_classes_of_descriptors_have_their_names(name: str) -> None:
    assert hasattr(importlib.import_module(DESCRIPTORS), name), f"{DESCRIPTORS} has no {name}: name it anew in {ROLES}"


def test_the_split_is_called_as_before(captured: Captured) -> None:
    given = captured.split_with
    assert set(given) == {"num_fwd_outputs", "static_lifetime_input_indices"}, (
        "AOTAutograd gives partition_fn other keywords; bridge/passes/split.py has to hand them on"
    )
    assert isinstance(given["num_fwd_outputs"], int), "num_fwd_outputs is no number: see capture.py and joint.py"
    assert len(captured.split_inputs) == 2, "partition_fn gets no longer (primals, tangents): see capture.py"


def test_inputs_are_described(captured: Captured) -> None:
    assert captured.joint is not None
    found = kinds(described(captured.joint, "placeholder"))
    assert found["PlainAOTInput"] == 10, f"Dynamo's inputs are described as {dict(found)}: see origin() in {ROLES}"
    assert found["TangentAOTInput"] >= 1, f"no tangent among {dict(found)}: see _OF_INPUT in {ROLES}"
    indices = [d.idx for d in described(captured.joint, "placeholder") if type(d).__name__ == "PlainAOTInput"]
    assert sorted(indices) == list(range(10)), f"PlainAOTInput.idx counts otherwise than Dynamo's inputs: see {ROLES}"


def test_outputs_are_described(captured: Captured) -> None:
    assert captured.joint is not None
    descriptors = described(captured.joint, "output")
    found = kinds(descriptors)
    assert found["InputMutationAOTOutput"] == 5, f"5 tensors change, not {dict(found)}: see _OF_OUTPUT in {ROLES}"
    assert found["GradAOTOutput"] >= 4, f"4 parameters have gradients, described as {dict(found)}: see {ROLES}"
    changed = [d.mutated_input for d in descriptors if type(d).__name__ == "InputMutationAOTOutput"]
    assert {type(one).__name__ for one in changed} == {"PlainAOTInput"}, f"mutated_input: see mutations() in {ROLES}"


def test_what_a_backward_gets_of_its_forward_is_told_apart(captured: Captured) -> None:
    assert captured.forward is not None
    assert captured.backward is not None
    saved = [kind for kind in kinds(described(captured.forward, "output")) if kind.startswith("SavedForBackwards")]
    assert saved, f"nothing that the forward saves is described as saved: see _OF_OUTPUT in {ROLES}"
    assert set(saved) <= set(roles._OF_OUTPUT), f"saved values have a new class of descriptor, {saved}: see {ROLES}"
    assert kinds(described(captured.backward, "placeholder"))["TangentAOTInput"] == 1, f"the tangent: see {ROLES}"


def test_every_node_has_its_value_and_its_line(captured: Captured) -> None:
    for module in (captured.joint, captured.forward, captured.backward):
        assert module is not None
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        without = [node.name for node in calls if "val" not in node.meta]
        assert not without, f"nodes without meta['val']: {without}; see frontends/torch/values.py"
        lines = [node for node in calls if "test_contract.py" in (node.meta.get("stack_trace") or "")]
        assert lines, "no node has the user's line in meta['stack_trace']; see bridge/ir/provenance.py"


def test_dynamo_names_the_sources_of_inputs() -> None:
    names: list[str] = []

    def backend(module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        names.extend(item.name for item in roles.frame_inputs(module, examples))
        return module.forward

    adapter_for(torch.__version__)[0].compile(Net(), backend, None, Listens(), True)(torch.randn(5, 6), torch.zeros(6))
    assert {"linear.weight", "norm.running_mean", "count", "x", "seen"} <= {
        name.removeprefix("self.") for name in names
    }, f"Dynamo's placeholders are named {names}: see _frame_input in {ROLES} and bridge/ir/provenance.py"


def test_training_is_exact() -> None:
    """With no backend at all between: what differs here differs in every program."""
    torch.manual_seed(0)
    eager = Net()
    compiled = copy.deepcopy(eager)
    call = Captured(compiled).call
    for model, function in ((eager, eager), (compiled, call)):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            seen = torch.zeros(6)
            y, _ = function(torch.randn(5, 6), seen)
            optimizer.zero_grad()
            (y.square().mean() + seen.sum()).backward()
            optimizer.step()
    differing = [name for name, value in eager.state_dict().items() if not value.equal(compiled.state_dict()[name])]
    assert not differing, f"AOTAutograd's graphs, run as they are, do not train as eager does: {differing}"


def test_a_graph_break_is_told() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    captured = Captured(function)
    captured.call(torch.randn(3))
    reasons = [broken for broken in captured.broken if broken is not None]
    assert len(captured.broken) == 2, f"a break makes {len(captured.broken)} graphs, not 2"
    assert len(reasons) == 1, f"compile_subgraph_reason does not tell a break: see graph_break in {BASE}"
    assert reasons[0].frames[-1].name == "function", f"user_stack has no frame of the user's: see {BASE}"


def test_dynamos_silent_answers_are_told() -> None:
    captured = Captured(lambda x: x * 2)
    with torch._dynamo.config.patch(recompile_limit=2):  # type: ignore[attr-defined]
        for size in range(2, 6):
            captured.call(torch.randn(size))
    told = captured.listener.told
    assert any(text.startswith("guard: ") for text in told), f"guard_fail_fn is not called, only {told}: see {BASE}"
    assert "limit" in told, f"Dynamo does not count its recompile limit in `counters`: see {BASE}"
