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
