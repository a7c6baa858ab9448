"""Programs that are recorded and replayed give what eager gives, whoever still holds the results of the last replay."""

from __future__ import annotations

import copy
import ctypes
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
import torch
from torch import fx, nn
from torch._functorch import config as functorch_config
from torch.nn import functional as F

import bridge
from bridge import pipeline
from bridge.backends.tvm.memory import storage_of
from bridge.backends.tvm.moving import Moving
from bridge.backends.tvm.pool import Pool
from bridge.backends.tvm.replay import RECORDINGS, WARM, Replay
from bridge.backends.tvm.ring import SLOTS
from bridge.backends.tvm.tensors import Copier
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Boxed, Graph, Phase, Role
from bridge.ledger import Ledger


@dataclass(eq=False)
class Recorded:
    """One recording: the pool that it lies in, the memory that it may use once it has read it, and what it gives."""

    pool: Any
    gone: list[torch.Tensor]
    given: list[torch.Tensor]
    storages: list[int]

    def destroy(self, others: Sequence[Recorded]) -> None:
        """What a recording's own values may lie over: what it has read, and what was recorded later in the pool."""
        later = [other for other in others[others.index(self) + 1 :] if other.pool is self.pool is not None]
        for tensor in [*self.gone, *(tensor for other in later for tensor in other.given)]:
            tensor.fill_(-77)


@pytest.fixture
def recordings() -> Iterator[list[int]]:
    """How many were made, and how many replays. In place of a CUDA graph a function runs again, into its memory.

    It runs while it is recorded too, and not in the first replay: the two together do what they do to a GPU. What they
    may destroy there is destroyed.
    """
    counts = [0, 0]
    made: list[Recorded] = []
    program = pipeline.program

    def record(run: Boxed, inputs: list[Any], pool: Any) -> tuple[Sequence[Any], Callable[[], None]]:
        counts[0] += 1
        held = list(inputs)
        storages = {storage for other in made if other.pool is pool is not None for storage in other.storages}
        gone = [t for t in held if isinstance(t, torch.Tensor) and storage_of(t) in storages]
        read = {storage_of(t) for t in held if isinstance(t, torch.Tensor)}
        results = run(inputs)
        fresh = [t for t in results if isinstance(t, torch.Tensor) and storage_of(t) not in read]
        one = Recorded(pool, gone, [borrowed(t) for t in fresh], [storage_of(t) for t in fresh])
        made.append(one)
        one.destroy(made)
        done = [True]

        def again() -> None:
            counts[1] += 1
            if done:
                return done.clear()
            for kept, fresh in zip(results, run(list(held)), strict=True):
                if isinstance(kept, torch.Tensor) and kept.data_ptr() != fresh.data_ptr():
                    kept.copy_(fresh)
            one.destroy(made)

        return results, again

    def replaying(lowered: Any, built: Any, callouts: Any, ledger: Any) -> Any:
        compiled = program(lowered, built, callouts, ledger)
        pool = lowered.graph.shared.setdefault(lowered.graph.name, Pool(object))
        replay = Replay(compiled, ledger, pool, record, borrowed, borrowed)
        return replace(compiled, run=lambda args: replay(args))  # a function, as on a GPU: the audit knows its code

    with mock.patch.object(pipeline, "program", replaying):
        yield counts


def borrowed(tensor: torch.Tensor, keeper: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor over memory that it does not keep, but by another tensor that it holds."""
    if not tensor.numel():
        return tensor.detach().clone()
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    memory = (ctypes.c_char * (reach * tensor.element_size())).from_address(tensor.data_ptr())
    memory.keeper = keeper  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.first(x)).softmax(-1) @ self.last.weight.t() + x.sum()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_training(recordings: list[int]) -> None:
    model, losses = Model(), []
    eager = copy.deepcopy(model)
    compiled = bridge.compile(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, eager)]
    for _ in range(7):
        x = torch.randn(5, 8)
        for optimizer, one in zip(optimizers, (compiled, eager), strict=True):
            optimizer.zero_grad()
            loss = one(x).square().mean()
            loss.backward()
            losses.append(loss)
        torch.testing.assert_close(gradients(model), gradients(eager))
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(losses[::2], losses[1::2])
    assert recordings[0] == 2
    assert recordings[1] == 9  # what the forward pass saves lies elsewhere from its recording on


def test_two_calls_before_the_backward_pass(recordings: list[int]) -> None:
    model = Model()
    eager, compiled = copy.deepcopy(model), bridge.compile(model)
    for _ in range(5):
        x, y = torch.randn(2, 5, 8)
        for one in (compiled, eager):
            one.zero_grad()
            (one(x) * one(y)).sum().backward()
        torch.testing.assert_close(gradients(model), gradients(eager))
    assert recordings[1] > 0
    (event,) = [e for e in compiled.ledger.select(kind="not recorded") if e.phase == "forward"]
    assert "are held" in event.detail


def test_gradients_that_are_kept(recordings: list[int]) -> None:
    model = Model()
    eager, compiled = copy.deepcopy(model), bridge.compile(model)
    for _ in range(6):
        x = torch.randn(5, 8)
        for one in (compiled, eager):
            one(x).sum().backward()
        torch.testing.assert_close(gradients(model), gradients(eager))


def test_gradients_that_are_held_while_the_next_forward_runs(recordings: list[int]) -> None:
    """As where `zero_grad` stands behind the forward: from the first such call on each recording has its own pool."""
    model = Model()
    eager, compiled = copy.deepcopy(model), bridge.compile(model)
    for number in range(14):
        x = torch.randn(5, 8)
        for one, call in ((model, compiled), (eager, eager)):
            if number < 7:
                one.zero_grad()
            held = gradients(one)
            loss = call(x).square().sum()
            torch.testing.assert_close(gradients(one), held)
            one.zero_grad()
            loss.backward()
        torch.testing.assert_close(gradients(model), gradients(eager))
    assert recordings[0] == 4
    assert recordings[1] >= 16
    assert not compiled.ledger.select(kind="not recorded")


@pytest.mark.parametrize("always", [False, True])
@functorch_config.patch(donated_buffer=False)  # with which torch refuses
def test_what_was_saved_is_used_twice(recordings: list[int], always: bool) -> None:
    model = Model()
    eager, compiled = copy.deepcopy(model), bridge.compile(model)
    for number in range(8):
        x = torch.randn(5, 8)
        for one in (compiled, eager):
            one.zero_grad()
            loss = one(x).square().sum()
            loss.backward(retain_graph=always or number > 5)
            if number > 5:
                loss.backward()
        torch.testing.assert_close(gradients(model), gradients(eager))
    details = [event.detail for event in compiled.ledger.select(kind="not recorded")]
    assert any("what the forward saved is held" in detail for detail in details) is not always
    assert recordings[0] == 2


def test_results_that_are_saved_too_and_held(recordings: list[int]) -> None:
    """A large result that the backward reads: it stays what it was, whoever holds it."""
    weight = nn.Parameter(torch.randn(600, 600))
    compiled = bridge.compile(lambda x: (x @ weight).exp())
    for _ in range(8):
        weight.grad = None
        x = torch.randn(600, 600) / 100
        result = compiled(x)
        result.square().sum().backward()
        exactly = (x @ weight.detach()).exp()
        torch.testing.assert_close(result.detach(), exactly)
        torch.testing.assert_close(weight.grad, x.t() @ (2 * exactly * exactly), rtol=1e-4, atol=1e-4)
        del result
    assert recordings[0] == 2


def test_parameters_that_move(recordings: list[int]) -> None:
    model = Model()
    compiled = bridge.compile(model)
    with torch.no_grad():
        for number in range(12):
            if number % 4 == 3:
                model.first.weight = nn.Parameter(torch.randn(16, 8))
            x = torch.randn(5, 8)
            torch.testing.assert_close(compiled(x), model(x))


def test_parameters_that_move_too_often_are_told() -> None:
    ledger = Ledger()
    graph = Graph("graph_0", Phase.INFERENCE, fx.GraphModule({}, fx.Graph()), (Role.PARAMETER,), (Role.OUTPUT,))
    replay = Replay(
        CompiledGraph(graph, {}, lambda args: [args[0] * 2], "", 0, ()),
        ledger,
        Pool(object),
        lambda run, inputs, pool: (run(inputs), lambda: None),
    )
    moved = [torch.full((3,), float(number)) for number in range(WARM + RECORDINGS + 3)]
    for x in moved:
        torch.testing.assert_close(list(replay([x])), [x * 2])
    (event,) = ledger
    assert event.kind == "not recorded"
    assert f"moved {RECORDINGS} times" in event.detail


def test_a_tensor_that_begins_amiss_is_copied_and_told() -> None:
    ledger, lowered = Ledger(), SimpleNamespace(graph=SimpleNamespace(name="graph_0", phase=Phase.FORWARD))
    copier = Copier(fx.Graph().placeholder("x"), cast(Any, lowered), ledger)
    x = torch.arange(13.0)[1:].view(3, 4).t()
    for _ in range(2):
        found = copier.align(x)
        torch.testing.assert_close(found, x, check_stride=True)
        assert found.data_ptr() % 16 == 0
    (event,) = ledger
    assert (event.kind, event.bytes) == ("laid out anew", 48)


class Pair:
    """A model that is trained by a compiled step, and one that eager trains alike."""

    def __init__(self, **options: Any) -> None:
        self.models = Model(), Model()
        self.models[1].load_state_dict(self.models[0].state_dict())
        self.optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in self.models]
        self.step = bridge.compile_step(self.models[0], self.optimizers[0], F.mse_loss, **options)

    def compare(self) -> None:
        x, target = torch.randn(5, 8), torch.randn(5, 4)
        mine = self.step(x, target)
        self.optimizers[1].zero_grad()
        loss = F.mse_loss(self.models[1](x), target)
        loss.backward()
        self.optimizers[1].step()
        torch.testing.assert_close(mine, loss.detach())
        torch.testing.assert_close(*(list(m.parameters()) for m in self.models))


def test_a_step_updates_where_its_tensors_lie(recordings: list[int]) -> None:
    pair = Pair(keep_grads=True)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in pair.optimizers]
    for _ in range(8):
        pair.compare()
        torch.testing.assert_close(*map(gradients, pair.models))
        for scheduler in schedulers:
            scheduler.step()
    assert recordings == [1, 5]


def test_a_state_that_is_loaded_is_recorded_anew(recordings: list[int]) -> None:
    pair = Pair()
    for number in range(10):
        if number == 5:
            for optimizer in pair.optimizers:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        pair.compare()
    assert recordings[0] == 2


def test_a_backward_reads_what_its_forward_copied(recordings: list[int]) -> None:
    model = Model()
    eager, compiled = copy.deepcopy(model), bridge.compile(model)
    found: list[bool] = []
    has_copy = Pool.has_copy

    def told(pool: Pool, tensor: torch.Tensor) -> bool:
        found.append(has_copy(pool, tensor))
        return found[-1]

    with mock.patch.object(Pool, "has_copy", told):
        for _ in range(9):
            x = torch.randn(5, 8)
            for one in (compiled, eager):
                one.zero_grad()
                one(x).square().sum().backward()
            torch.testing.assert_close(gradients(model), gradients(eager))
    assert sum(found) == 1, "the input, when the backward is recorded"
    assert recordings[0] == 2


def test_inputs_that_lie_still_are_read_where_they_lie(recordings: list[int]) -> None:
    model, buffer = Model(), torch.zeros(5, 8)
    eager, compiled = copy.deepcopy(model), bridge.compile(model)
    copied: list[int] = []
    fill = Moving.fill

    def told(moving: Moving, args: Sequence[torch.Tensor]) -> None:
        copied.append(len(moving.copies))
        fill(moving, args)

    with mock.patch.object(Moving, "fill", told):
        for number in range(16):
            x = buffer.copy_(torch.randn(5, 8)) if number < 8 else torch.randn(5, 8)
            for one in (compiled, eager):
                one.zero_grad()
                one(x).square().sum().backward()
            torch.testing.assert_close(gradients(model), gradients(eager))
            if number == 7:
                assert copied
                assert copied[0] == 0, "the forward's input"
                assert recordings[0] == 2
    assert max(copied) == 1
    assert recordings[0] >= 3


def test_an_input_that_lies_still_and_is_read_otherwise(recordings: list[int]) -> None:
    """Of the same memory, but negated by a flag: as a gradient may be."""
    compiled = bridge.compile(lambda x: x.exp() * 2)
    x, weight = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    for number in range(9):
        x.grad = None
        gradient = weight if number < 6 else torch._neg_view(weight)  # type: ignore[reportPrivateImportUsage]
        compiled(x).backward(gradient)
        torch.testing.assert_close(x.grad, 2 * x.detach().exp() * gradient)
    assert recordings[1], "it was replayed in between"


@pytest.mark.parametrize("kept", [1, 3, 200], ids=["none", "some", "all"])
def test_losses_that_are_kept(recordings: list[int], kept: int) -> None:
    """What stays of the last `kept` steps, or of each third, is what it was."""
    compiled = bridge.compile(lambda x: (x * 3).sum())
    losses: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number in range(3 * SLOTS):
        x = torch.randn(7)
        losses.append((compiled(x), (x * 3).sum()))
        if kept == 1 or (kept == 3 and number % 3):
            del losses[-1]
        for mine, exactly in losses:
            torch.testing.assert_close(mine, exactly)
    assert recordings[1] > 2 * SLOTS
    del compiled
    mine, exactly = compiled_alone(losses)
    torch.testing.assert_close(mine, exactly)


def compiled_alone(losses: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What is left of losses after everything that computed them is gone."""
    torch._dynamo.reset()
    gc.collect()
    _ = [torch.full((9000,), 7.0) for _ in range(20)]
    return [mine for mine, _ in losses], [exactly for _, exactly in losses]


def test_a_loss_is_changed_by_its_user(recordings: list[int]) -> None:
    compiled = bridge.compile(lambda x: (x * 3).sum())
    for _ in range(8):
        x = torch.randn(7)
        loss = compiled(x)
        loss += 1
        torch.testing.assert_close(loss, (x * 3).sum() + 1)
    assert recordings[1], "it was replayed in between"
