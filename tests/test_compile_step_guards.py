"""What a compiled step has to notice, and what it leaves to eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.errors import BadOption, NotCompilable
from tests.test_compile_step import Pair, adamw, batch, momentum, network

SCALE = 1.0


def test_sizes_have_programs_of_their_own() -> None:
    pair = Pair(network(), adamw)
    for seed, size in enumerate((5, 7, 5, 7)):
        pair.take(seed, *batch(seed, size))
    assert pair.phases == ["step", "step"]


def test_one_program_serves_sizes_that_are_symbols() -> None:
    pair = Pair(network(), adamw, dynamic=True)
    for seed, size in enumerate((5, 7, 9, 4)):
        pair.take(seed, *batch(seed, size))
    assert pair.phases == ["step"]


def test_modes_attributes_and_parameters_that_are_frozen_are_noticed() -> None:
    pair = Pair(network(), adamw)
    both: Any = (pair.model, pair.eager)
    pair.take(0)
    for model in both:
        model.eval()
    pair.take(1)
    for model in both:
        model.train()
        model[3].p = 0.5
    pair.take(2)
    for model in both:
        model[0].weight.requires_grad_(False)
    pair.take(3)
    for model in both:
        model[0].weight.requires_grad_(True)
    pair.take(4)
    assert len(pair.phases) == 4


def test_a_global_that_the_loss_reads_is_noticed() -> None:
    def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target) * SCALE

    global SCALE
    pair = Pair(network(), momentum, loss_fn)
    pair.take(0)
    SCALE = 2.0
    pair.take(1)
    SCALE = 1.0
    pair.take(2)
    assert len(pair.phases) == 2


def test_another_type_and_other_memory_of_the_parameters_are_noticed() -> None:
    pair = Pair(network(), momentum)
    pair.take(0)
    for model in (pair.model, pair.eager):
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    pair.take(1)
    assert len(pair.phases) == 1
    for optimizer, model in ((pair.optimizer, pair.model), (pair.eager_optimizer, pair.eager)):
        model.double()
        for state in optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].double()
    inputs, target = batch(2)
    pair.take(2, inputs.double(), target)
    assert len(pair.phases) == 2


def test_a_forward_hook_is_part_of_the_step() -> None:
    pair = Pair(network(), momentum)
    pair.take(0)
    handles = [model[4].register_forward_hook(lambda m, a, out: out * 2) for model in (pair.model, pair.eager)]  # type: ignore[index]
    pair.take(1)
    for handle in handles:
        handle.remove()
    pair.take(2)
    assert pair.runs == [1, 1]


def test_hooks_on_gradients_and_on_the_optimizer_are_called() -> None:
    pair = Pair(network(), momentum)
    pair.take(0)
    seen: list[str] = []
    for model in (pair.model, pair.eager):
        model[0].weight.register_hook(lambda g: seen.append("gradient") or g * 2)  # type: ignore[index]
    pair.take(1)
    assert seen == ["gradient", "gradient"]
    assert "uncaptured" in pair.kinds

    pair = Pair(network(), momentum)
    for optimizer in (pair.optimizer, pair.eager_optimizer):
        optimizer.register_step_post_hook(lambda *_: seen.append("step"))
    pair.take(0)
    pair.take(1)
    assert seen.count("step") == 4
    assert pair.kinds == ["step outside"]
    assert pair.phases == ["joint"]


class Breaks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y * 2 if y.sum() > 0 else y


class Counts(Breaks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x) * self.calls


@pytest.mark.parametrize("kind", [Breaks, Counts])
def test_what_is_no_single_graph_runs_outside(kind: type[Breaks]) -> None:
    pair = Pair(kind(), adamw)
    for seed in range(3):
        pair.take(seed)
    assert {"uncaptured", "step outside"} <= set(pair.kinds)
    assert "step" not in pair.phases
    assert pair.model.calls == pair.eager.calls


class Inputs(nn.Module):
    """Tied weights, one that is frozen, one that nothing uses, and a buffer that is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.ones(6), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        self.get_buffer("seen").add_(mask.sum())
        scores = self.head(self.embedding(tokens) * self.frozen) * mask[..., None]
        return scores if labels is None else F.cross_entropy(scores.flatten(0, 1), labels.flatten())


def test_named_and_several_inputs() -> None:
    tokens, mask = torch.tensor([[1, 2, 3], [3, 2, 0]]), torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    pair = Pair(Inputs(), adamw, loss_fn=None)
    for seed in range(3):
        pair.take(seed, {"tokens": tokens + seed, "mask": mask, "labels": tokens})
    assert pair.phases == ["step"]
    assert pair.model.unused.grad is None
    pair = Pair(Inputs(), momentum, lambda scores, target: F.cross_entropy(scores.flatten(0, 1), target.flatten()))
    for seed in range(3):
        pair.take(seed, (tokens, mask), tokens)
    assert pair.phases == ["step"]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ self.weight * b).sum()


def test_an_input_that_comes_twice_and_one_that_is_a_parameter() -> None:
    torch.manual_seed(0)
    pair = Pair(Two(), momentum, loss_fn=None)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    for seed, given in enumerate([(x, x), (x, y), (x, x), (y, x)]):
        pair.take(seed, given)
    assert len(pair.phases) == 2
    pair.step((pair.model.weight.detach(), x))
    pair.eager_optimizer.zero_grad()
    pair.eager(pair.eager.weight.detach(), x).backward()
    pair.eager_optimizer.step()
    pair.compare()
    assert pair.kinds == ["step outside"]
    pair.take(9, (y, x))
    assert pair.phases == ["step", "step", "forward", "backward"]  # the two last are the call outside


def test_mistakes_are_told() -> None:
    model = network()
    with pytest.raises(NotCompilable):
        bridge.compile_step(model, [])  # type: ignore[arg-type]
    with pytest.raises(NotCompilable):
        bridge.compile_step(torch.relu, adamw(model.parameters()))  # type: ignore[arg-type]
    with pytest.raises(BadOption):
        bridge.compile_step(model, adamw(model.parameters()), clip_norm=1.0, clip_value=1.0)
    step = bridge.compile_step(model, adamw(model.parameters()), F.cross_entropy)
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):
        step(*batch(0))


def in_words(out: torch.Tensor, y: torch.Tensor) -> float:
    return F.cross_entropy(out, y).item()


@pytest.mark.parametrize(
    ("loss_fn", "words"),
    [
        (in_words, r"loss_fn=in_words \(\w+.py:\d+ in in_words\) gives a Python float, .*`.item\(\)`"),
        (lambda out, y: (F.cross_entropy(out, y), out), "gives tuple, .*give the loss alone"),
        (lambda out, y: None, "gives NoneType, "),
        (nn.CrossEntropyLoss(reduction="none"), r"loss_fn=CrossEntropyLoss gives a tensor of sizes \[5\], .*mean"),
        (lambda out, y: out.argmax(), "gives a tensor without a graph, "),
        (None, r"the model, .*gives a tensor of sizes \[5, \d+\]"),
    ],
)
def test_what_is_no_loss_is_told_with_what_to_give(loss_fn: Any, words: str) -> None:
    model = network()
    before = [parameter.clone() for parameter in model.parameters()]
    step = bridge.compile_step(model, adamw(model.parameters()), loss_fn)
    x, y = batch(0)
    for _ in range(2):  # the second finds that there is no program
        with pytest.raises(BadOption, match=words):
            step(x, *([] if loss_fn is None else [y]))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"twice": 2 * x}


def test_a_model_that_gives_no_loss_is_told_so() -> None:
    optimizer = adamw([nn.Parameter(torch.ones(1))])
    with pytest.raises(BadOption, match="the model, .*gives dict, .*pass loss_fn"):
        bridge.compile_step(Twice(), optimizer)(torch.ones(2))


def test_an_optimizer_that_asks_for_the_loss_is_given_one() -> None:
    model = network()
    step = bridge.compile_step(model, torch.optim.LBFGS(model.parameters()), in_words)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="gives a Python float"):
        step(*batch(0))


def test_sparse_gradients_are_left_to_eager() -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    pair = Pair(nn.Sequential(nn.Embedding(7, 3, sparse=True)), make)
    for seed in range(2):
        pair.take(seed, torch.tensor([1, 2, 5]), torch.tensor([0, 2, 1]))
    assert "step outside" in pair.kinds


def test_a_module_that_changes_before_every_step_ends_in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.step.MOST_PROGRAMS", 2)
    pair = Pair(network(), momentum)
    for seed in range(5):
        for model in (pair.model, pair.eager):
            model[3].p = 0.01 * seed
        pair.take(seed)
    assert pair.phases.count("step") == 2
    assert "step outside" in pair.kinds
    assert sum(map(len, pair.step._programs.values())) == 3
