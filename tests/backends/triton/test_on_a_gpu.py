"""The target "triton" over a whole model, what it keeps of its choices, 16-bit floats with a scaler, and memory."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.ir.nodes import op_name
from bridge.ledger import Way
from experiments.models import MODELS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

CHOOSES = """
import json, torch, bridge
from bridge.backends.triton import measure

calls, seconds = [], measure.seconds
measure.seconds = lambda *given: calls.append(0) or seconds(*given)
compiled = bridge.compile(lambda x: x.cumsum(1) * 2)
x = torch.randn(4096, 1024, device="cuda", requires_grad=True)
compiled(x).sum().backward()
told = sorted({(event.kind, event.op) for event in compiled.ledger})
print(json.dumps([len(calls), [list(graph.placement.values()) for graph in bridge.inspect(compiled).graphs], told]))
"""

SLOWER = {"aten.cumsum.default", "aten.embedding_dense_backward.default"}
"""What ATen is left where Triton is slower, since no kernel of TVM's computes it on a GPU."""


def model_of(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any], Callable[[Any], torch.Tensor]]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, args, kwargs, loss = MODELS[name]()
    return model.eval(), args, kwargs, loss


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


def test_a_model_by_triton_first() -> None:
    model, args, kwargs, loss = model_of("gpt2")
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = bridge.compile(model, target="triton")
    for one in (compiled, eager, exact):
        loss(one(*args, **kwargs)).backward()
    mine, own, right = map(gradients, (model, eager, exact))
    largest = max(gradient.abs().max() for gradient in right.values())
    wrong = {
        name: (error.item(), limit.item())
        for name in right
        if (error := (mine[name] - right[name]).abs().max())
        > (limit := max(2 * (own[name] - right[name]).abs().max(), 1e-5 * largest))
    }
    assert wrong == {}
    assert not compiled.ledger.select(kind="build failed")
    left = {
        op_name(node)
        for graph in bridge.inspect(compiled).graphs
        for node in graph.graph.nodes
        if graph.placement.get(node.name) is Way.FALLBACK
    }
    assert left <= SLOWER


def test_a_choice_is_found_again_by_another_process(tmp_path: Path) -> None:
    told = []
    for _ in range(2):
        environment = {**os.environ, "BRIDGE_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", CHOOSES]
        made = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=300)
        told.append(json.loads(made.stdout.strip().splitlines()[-1]))
    (measured, *first), (again, *second) = told
    assert measured > 0
    assert again == 0
    assert first == second


def test_float16_with_a_scaler() -> None:
    model, args, kwargs, loss = model_of("gpt2")
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = bridge.compile(model)
    for one, module in ((compiled, model), (eager, eager)):
        optimizer, scaler = torch.optim.SGD(module.parameters(), lr=1e-3), torch.amp.GradScaler("cuda", 1024.0)
        with torch.autocast("cuda", torch.float16):
            value = loss(one(*args, **kwargs))
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 1024, "nothing was infinite"
    loss(exact(*args, **kwargs)).backward()
    right = gradients(exact)
    mine, own = (
        {name: (g - right[name]).norm().item() / (right[name].norm().item() + 1e-12) for name, g in found.items()}
        for found in (gradients(model), gradients(eager))
    )
    assert {name: (error, own[name]) for name, error in mine.items() if error > 2 * own[name] + 1e-4} == {}


def test_a_step_takes_no_memory_that_is_not_torchs() -> None:
    model, args, kwargs, loss = model_of("gpt2")
    compiled = bridge.compile(model)

    def outside() -> int:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    def step() -> None:
        loss(compiled(*args, **kwargs)).backward()

    for _ in range(3):
        step()
    grown = []
    for _ in range(5):  # another process may take some of the GPU's in between
        before = outside()
        for _ in range(5):
            step()
        grown.append(outside() - before)
    assert min(grown) <= 0, grown
