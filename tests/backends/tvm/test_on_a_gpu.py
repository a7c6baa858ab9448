"""Training on a GPU: gradients as exact as eager's, nothing left to ATen but what is named, streams and graphs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from experiments.models import MODELS
from tests.backends.tvm.test_blocks import FUNCTIONS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SERIAL = {"aten.cumsum.default", "aten.embedding_dense_backward.default"}
"""What TVM leaves to others in the models below."""


def errors(model: nn.Module, reference: nn.Module) -> dict[str, float]:
    """The largest error of each gradient."""
    pairs = zip(model.named_parameters(), reference.parameters(), strict=True)
    return {
        n: (p.grad.double() - q.grad).abs().max().item()
        for (n, p), q in pairs
        if p.grad is not None and q.grad is not None
    }


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("name", ["mlp", "resnet18", "gpt2", "bert", "llama"])
def test_gradients(name: str, mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with torch.device("cuda"):
        model, args, kwargs, loss = MODELS[name]()
        if name != "resnet18":
            model.eval()
        eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
        compiled = bridge.compile(model, options={"mode": mode})
        wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
        for _ in range(1 if mode is None else 5):
            model.zero_grad()
            loss(compiled(*args, **kwargs)).backward()
        loss(eager(*args, **kwargs)).backward()
        loss(exact(*wide, **kwargs)).backward()
    scale = {n: p.grad.abs().max().item() for n, p in exact.named_parameters() if p.grad is not None}
    own = errors(eager, exact)
    limits = {n: max(2 * own[n], 1e-5 * scale[n], 1e-7 * max(scale.values())) for n in scale}
    assert {n: e for n, e in errors(model, exact).items() if not e <= limits[n]} == {}
    left = {event.op for event in compiled.ledger if event.kind in ("serial", "no row", "device", "build failed")}
    assert left <= SERIAL


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_images(mode: str | None) -> None:
    with torch.device("cuda"):
        model, args, _, loss = MODELS["resnet18"]()
        eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
        compiled = bridge.compile(model, options={"mode": mode})
    for _ in range(1 if mode is None else 5):
        for one in (compiled, eager):
            one.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                value = loss(one(*args))
            value.backward()
    loss(exact(*(a.double() for a in args))).backward()
    mine, own = ([e.square().sum().sqrt().item() for e in distances(m, exact)] for m in (model, eager))
    assert all(m <= 2 * o + 1e-6 for m, o in zip(mine, own, strict=True)), (mine, own)
    assert {event.kind for event in compiled.ledger} <= {"copied back"}


def distances(model: nn.Module, exact: nn.Module) -> list[torch.Tensor]:
    pairs = zip(model.parameters(), exact.parameters(), strict=True)
    return [p.grad.double() - q.grad for p, q in pairs if p.grad is not None and q.grad is not None]


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_row_that_an_index_outside_points_at(mode: str | None) -> None:
    """It is read inside of its tensor: memory far away is none of the process's."""
    table, place = torch.randn(64, 256, device="cuda"), torch.tensor([0, 1 << 30, -(1 << 30), 63], device="cuda")
    compiled = bridge.compile(lambda x, p: F.embedding(p, x) * 2, options={"mode": mode})
    for _ in range(4):
        found = compiled(table, place)
    torch.testing.assert_close(found[::3], table[::63] * 2)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_training_on_another_gpu() -> None:
    with torch.device("cuda:1"):
        model, args, kwargs, loss = MODELS["gpt2"]()
        eager = copy.deepcopy(model.eval())
        compiled = bridge.compile(model)
    for one in (compiled, eager):
        loss(one(*args, **kwargs)).backward()
    for mine, own in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, own.grad, rtol=1e-3, atol=1e-5)
    assert torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="device"):
        compiled(*(a.to("cuda:0") if isinstance(a, torch.Tensor) else a for a in args),
                 **{k: v.to("cuda:0") if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()})  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, dtype: torch.dtype) -> None:
    function, compiled = FUNCTIONS[name], bridge.compile(FUNCTIONS[name])
    for shape in ((37, 300), (512, 1024), (3, 50257)):
        x = torch.randn(shape, device="cuda", dtype=dtype)
        exact, eager, mine = function(x.double()), function(x), compiled(x)
        own = torch.nan_to_num(eager.double() - exact).abs().max()
        limit = max(2 * own.item(), 2e-5 * exact.abs().max().item())
        assert torch.nan_to_num(mine.double() - exact).abs().max() <= limit


def test_side_streams() -> None:
    compiled, stream = bridge.compile(lambda x: F.softmax(x, -1)), torch.cuda.Stream()
    compiled(torch.randn(4096, 1024, device="cuda"))
    for _ in range(20):
        with torch.cuda.stream(stream):
            x = torch.randn(4096, 1024, device="cuda")
            mine, eager = compiled(x), F.softmax(x, -1)
        stream.synchronize()
        torch.testing.assert_close(mine, eager)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_another_gpu_than_the_current_one() -> None:
    compiled = bridge.compile(lambda x: F.softmax(x, -1))
    for index in (1, 0, 1):
        x = torch.randn(64, 100, device=f"cuda:{index}")
        torch.testing.assert_close(compiled(x), F.softmax(x, -1))
        assert torch.cuda.current_device() == 0


def step_of(
    name: str, fused: bool | None
) -> tuple[bridge.step.TrainingStep, nn.Module, nn.Module, torch.optim.Optimizer]:
    """A whole step of a small model, and the model and optimizer that eager trains beside it."""
    with torch.device("cuda"):
        model, _, _, _ = MODELS[name]()
    model.eval()
    eager = copy.deepcopy(model)
    mine, own = (torch.optim.AdamW(m.parameters(), lr=1e-3, fused=fused) for m in (model, eager))
    return bridge.compile_step(model, mine, MODELS[name]()[3]), model, eager, own


@pytest.mark.parametrize("fused", [None, True], ids=["plain", "fused"])
@pytest.mark.parametrize("name", ["mlp", "gpt2", "llama"])
def test_whole_steps(name: str, fused: bool | None) -> None:
    step, model, eager, own = step_of(name, fused)
    with torch.device("cuda"):
        _, args, kwargs, loss = MODELS[name]()
    for _ in range(8):
        own.zero_grad()
        theirs = loss(eager(*args, **kwargs))
        theirs.backward()
        own.step()
        mine = step(kwargs if kwargs else args)
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*(list(m.parameters()) for m in (model, eager)), rtol=1e-3, atol=1e-3)
    kinds = {event.kind for event in bridge.inspect(step).ledger}
    assert kinds.isdisjoint({"copied back", "not recorded", "step outside", "compiler failed"}), kinds


def test_dropout_is_drawn_anew_in_each_replay() -> None:
    with torch.device("cuda"):
        model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 4))
        inputs = torch.randn(8, 32, 64)
    found: list[list[torch.Tensor]] = []
    for mode in ("default", "reduce-overhead"):
        compiled = bridge.compile(model, options={"mode": mode})
        torch.manual_seed(1)
        found.append([])
        for x in inputs:
            model.zero_grad()
            loss = compiled(x).square().mean()
            loss.backward()
            found[-1] += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    torch.testing.assert_close(*found)
    assert not compiled.ledger.select(kind="not recorded")


def test_what_begins_amiss_is_copied_and_told() -> None:
    compiled = bridge.compile(lambda x: x.exp() * 2)
    x = torch.randn(4097, device="cuda")[1:]
    torch.testing.assert_close(compiled(x), x.exp() * 2)
    (event,) = compiled.ledger.select(kind="laid out anew")
    assert event.bytes == 4 * 4096


def test_what_is_held_is_not_replayed_over_and_told() -> None:
    compiled = bridge.compile(lambda x: x.sin() * 2, options={"mode": "reduce-overhead"})
    inputs = [torch.randn(1024, 1024, device="cuda") for _ in range(6)]
    results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results):
        torch.testing.assert_close(result, x.sin() * 2)
    (event,) = compiled.ledger.select(kind="not recorded")
    assert "are held" in event.detail
