"""What a compiled step would get wrong in silence if nobody looked: shared memory, gradients left over, new objects."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.given import flattened
from tests.test_compile_step import Pair, adamw, batch, momentum, network


def inputs(seed: int, *sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (4, 6)), generator=torch.Generator().manual_seed(seed))


class Linear(nn.Module):
    """One layer, and something done with what it gives."""

    def __init__(self, after: Callable[..., torch.Tensor], **attributes: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.after = after
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor, *others: Any) -> torch.Tensor:
        return self.after(self, self.layer(x), *others)


# Shared memory --------------------------------------------------------------------------------------------------------


class ShowsWeight(nn.Module):
    """A buffer is a view of the weight, and the gradient of another parameter reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(inputs(0, 3, 6)), nn.Parameter(inputs(1, 3, 6))
        self.shown: torch.Tensor
        self.register_buffer("shown", self.weight.data[:])

    def __deepcopy__(self, memo: Any) -> ShowsWeight:
        return ShowsWeight()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight.t()).sum() + (self.shown * self.other).sum()


def test_a_buffer_that_shows_a_parameter_changes_with_it() -> None:
    pair = Pair(ShowsWeight(), momentum, None)
    for seed in range(3):
        pair.take(seed, inputs(seed))
    assert "step outside" in pair.kinds
    assert "share memory" in pair.step.ledger.select(kind="step outside")[0].detail


def test_parameters_beside_one_another_in_memory_are_one_program() -> None:
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh(), nn.Linear(6, 6, bias=False))
    flat = inputs(0, 72)
    model[0].weight.data, model[2].weight.data = flat[:36].view(6, 6), flat[36:].view(6, 6)
    pair = Pair(model, momentum, lambda output: output.square().mean())
    for seed in range(3):
        pair.take(seed, inputs(seed))
    assert pair.runs == [2]


def test_inputs_that_overlap_only_later_are_noticed_where_one_is_changed() -> None:
    def doubled(_: Any, y: torch.Tensor, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return (y * other.sum(1, keepdim=True)).mean()

    pair = Pair(Linear(doubled), momentum, None)
    for seed, overlap in enumerate((False, False, True, False)):
        found = []
        for take in (pair.step, lambda given: pair.eager(*given)):
            x, whole = inputs(seed), inputs(seed + 10, 8, 6)
            given = (x, whole[:4], whole[2:6] if overlap else whole[2:6].clone())
            pair.eager_optimizer.zero_grad()
            found.append((loss := take(given), whole))
            if loss.requires_grad:
                loss.backward()
                pair.eager_optimizer.step()
        torch.testing.assert_close(found[0], (found[1][0].detach(), found[1][1]))
        pair.compare()
    assert pair.runs[0] == 2


# Gradients that were there --------------------------------------------------------------------------------------------


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor, first: bool) -> torch.Tensor:
        return (self.one if first else self.two)(x).square().mean()


def test_gradients_of_an_earlier_step_are_not_kept() -> None:
    pair = Pair(TwoHeads(), momentum, None, keep_grads=True)
    for seed in range(6):
        pair.take(seed, (inputs(seed), seed % 2 == 0))
        for mine, eager in zip(pair.model.parameters(), pair.eager.parameters(), strict=True):
            assert (mine.grad is None) == (eager.grad is None)
            torch.testing.assert_close(mine.grad, eager.grad)


def test_what_lay_in_grad_before_is_not_accumulated() -> None:
    pair = Pair(TwoHeads(), momentum, None)
    for first in (True, False, True):
        pair.take(0, (inputs(0), first))
    pair.model.two.weight.grad = torch.ones(1, 6)
    pair.step.accumulate((inputs(1), True))
    loss = pair.step((inputs(2), True))
    pair.eager_optimizer.zero_grad()
    pair.eager(inputs(1), True).backward()
    expected = pair.eager(inputs(2), True)
    expected.backward()
    pair.eager_optimizer.step()
    torch.testing.assert_close(loss, expected.detach())
    pair.compare()


def test_accumulated_gradients_may_be_dropped() -> None:
    pair = Pair(network(), momentum)
    pair.take(0)
    pair.take(1)
    pair.step.accumulate(*batch(2))
    pair.optimizer.zero_grad()
    pair.take(3)


# Objects that are replaced --------------------------------------------------------------------------------------------


class Doubles:
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Squares(Doubles):
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x.square()


REPLACED = {
    "a function in nested dicts": (
        lambda m, y: m.held["deep"]["act"](y).mean(),
        {"deep": {"act": torch.tanh}},
        lambda held: held["deep"].update(act=torch.exp),
    ),
    "a function of Python's": (
        lambda m, y: m.held["deep"]["act"](y).mean(),
        {"deep": {"act": F.silu}},
        lambda held: held["deep"].update(act=F.mish),
    ),
    "an attribute of an object": (
        lambda m, y: m.held.act(y).mean(),
        SimpleNamespace(act=torch.sin),
        lambda held: setattr(held, "act", torch.exp),
    ),
    "an object of another class": (
        lambda m, y: m.held.act.of(y).mean(),
        SimpleNamespace(act=Doubles()),
        lambda held: setattr(held, "act", Squares()),
    ),
    "a method of one object": (
        lambda m, y: m.held.act.of(y).mean(),
        SimpleNamespace(act=Doubles()),
        lambda held: setattr(held.act, "of", torch.sin),
    ),
}


@pytest.mark.parametrize("what", REPLACED)
def test_what_a_model_holds_is_noticed_when_it_is_replaced(what: str) -> None:
    after, held, replace = REPLACED[what]
    pair = Pair(Linear(after, held=held), momentum, None)
    pair.take(0, inputs(0))
    pair.take(1, inputs(1))
    for model in (pair.model, pair.eager):
        replace(model.held)
    pair.take(2, inputs(2))
    pair.take(3, inputs(3))


def test_an_argument_that_is_an_object_is_noticed_when_it_changes() -> None:
    config = SimpleNamespace(scale=1.0)
    pair = Pair(Linear(lambda _, y, given: (y * given.scale).mean()), momentum, None)
    for seed in range(3):
        config.scale = seed + 1.0
        pair.take(seed, (inputs(seed), config))


def test_numbers_that_are_equal_and_not_the_same_have_programs_of_their_own() -> None:
    pair = Pair(Linear(lambda _, y, k: y.mean() * math.copysign(1, k)), momentum, None)
    for seed, number in enumerate((0.0, 0.0, -0.0, -0.0)):
        pair.take(seed, (inputs(seed), number))
    assert pair.phases == ["step", "step"]


def test_nan_as_an_argument_is_the_same_each_time() -> None:
    pair = Pair(Linear(lambda _, y, k: y.mean() * (1 if k != k else 2)), momentum, None)
    for seed in range(3):
        pair.take(seed, (inputs(seed), float("nan")))
    assert pair.phases == ["step"]


def test_arrays_of_numpys_are_inputs_too() -> None:
    np = pytest.importorskip("numpy")
    pair = Pair(Linear(lambda _, y, k: y.mean() * torch.as_tensor(k).sum().float()), momentum, None)
    for seed in range(3):
        pair.take(seed, (inputs(seed), np.array([1.0, seed])))


def test_what_only_looks_like_an_array_is_compared_as_it_is() -> None:
    class Image:
        @property
        def __array_interface__(self) -> dict[str, Any]:
            raise AssertionError("it may be dear to make")

    image = Image()
    leaves, structure = flattened((inputs(0), image), ())
    assert len(leaves) == 1
    assert structure == flattened((inputs(1), image), ())[1]
    assert structure != flattened((inputs(1), Image()), ())[1]


def test_a_learning_rate_that_is_another_tensor_is_noticed() -> None:
    pair = Pair(network(), lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9))
    for seed in range(5):
        if seed == 3:
            for optimizer in (pair.optimizer, pair.eager_optimizer):
                optimizer.param_groups[0]["lr"] = torch.tensor(0.3)
        pair.take(seed)
    assert pair.phases == ["step"]


# And the rest ---------------------------------------------------------------------------------------------------------


def test_a_mask_that_selects_is_part_of_the_program() -> None:
    def chosen(_: Any, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count = mask.sum().item()
        torch._check(count < 7)
        return y[mask].square().sum() / max(count, 1)

    pair = Pair(Linear(chosen), momentum, None)
    for seed in range(4):
        pair.take(seed, (inputs(seed, 8, 6), torch.arange(8) % (seed + 2) == 0))
    assert not pair.kinds
    before = copy.deepcopy(pair.model.state_dict())
    with pytest.raises(RuntimeError, match="Runtime assertion"):
        pair.step((inputs(0, 8, 6), torch.ones(8, dtype=torch.bool)))
    torch.testing.assert_close(dict(pair.model.state_dict()), dict(before), rtol=0, atol=0)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda step: pickle.loads(pickle.dumps(step))])
def test_a_copy_of_a_step_trains_a_copy_of_the_model(how: Callable[[Any], Any]) -> None:
    pair = Pair(network(), adamw)
    pair.take(0)
    pair.take(1)
    before = copy.deepcopy(pair.model.state_dict())
    other = how(pair.step)
    torch.manual_seed(2)
    other(*batch(2))
    torch.testing.assert_close(dict(pair.model.state_dict()), dict(before), rtol=0, atol=0)
    pair.take(2)
    torch.testing.assert_close(dict(other.model.state_dict()), dict(pair.model.state_dict()))


def test_calls_without_a_program_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.step.MOST_PROGRAMS", 2)
    pair = Pair(Linear(lambda _, y, k: y.mean() * k), momentum, None)
    for seed in range(8):
        pair.take(seed, (inputs(seed), 1.0 + seed))
    assert sum(map(len, pair.step._programs.values())) == 4


def test_a_tensor_that_the_model_keeps_is_told() -> None:
    def keeps(model: Any, y: torch.Tensor) -> torch.Tensor:
        model.last = y.detach() * 2
        return y.mean()

    model = Linear(keeps, last=torch.zeros(()))
    step = bridge.compile_step(model, momentum(model.parameters()))
    step(inputs(0))
    assert [e.detail for e in step.ledger if "gives or keeps other tensors beside the loss" in e.detail]


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
def test_gradients_that_were_carried_outlast_a_step_that_failed(keep: bool) -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 1))
    eager = copy.deepcopy(model)
    mine, own = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, eager))
    step = bridge.compile_step(model, mine, lambda y: y.square().mean(), keep_grads=keep)
    good, bad = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[0, 1], [2, 9]])
    step.accumulate(good)
    step(good)
    step.accumulate(good)
    with pytest.raises(IndexError):
        step(bad)
    step(good)
    for _ in range(2):
        own.zero_grad()
        for _ in range(2):
            eager(good).square().mean().backward()
        own.step()
    torch.testing.assert_close(list(model.parameters()), list(eager.parameters()))
