"""Which configuration of a kernel is quickest at a node's shapes, and whether ATen is quicker: measured once, kept."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx

from bridge.backends.triton.table import Row
from bridge.ir.call import call_text, hint_of
from bridge.ir.callout import callout, callout_inputs
from bridge.ir.rows import asked
from bridge.ir.schema import call_arguments
from bridge.runtime.cache import code_digest, users_cache
from bridge.runtime.examples import dispatched, drawn

Call = Callable[..., Any]
KEPT = "choice.json"
SPENT, REPEATS = 0.01, 3
"""Seconds for which one candidate is run, and how often it is timed: the best counts."""


@dataclass(frozen=True)
class Choice:
    """What is to run a node.

    config: the place of the quickest configuration; None where ATen is quicker, or nothing of ours runs. ours, aten:
    seconds of one call, 0 where nothing was measured. dispatched: the overloads that one launch dispatches, and how
    often. failed: why no configuration runs.
    """

    config: int | None
    ours: float = 0.0
    aten: float = 0.0
    dispatched: Mapping[str, int] = field(default_factory=dict)
    failed: str = ""


def choice(node: fx.Node, row: Row, calls: Sequence[Call], cached: bool) -> Choice:
    """The choice for a node among calls, one for each of the row's configurations, and ATen."""
    cache, key = users_cache(), _key(node)
    with tempfile.TemporaryDirectory() as name:
        kept = Path(name) / KEPT
        if cached and key and cache.fetch(key, Path(name)):
            return Choice(**json.loads(kept.read_text()))
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily(), torch.no_grad():  # a graph is compiled while torch is still tracing
            made = _measured(calls, callout(node)[0], examples(node, row))
        if cached and key and not made.failed:
            kept.write_text(json.dumps(asdict(made)))
            cache.store(key, Path(name))
        return made


def examples(node: fx.Node, row: Row) -> list[Any]:
    """Values for `callout_inputs(node)`: the same ones each time, and torch's own generators are left alone."""
    below = {"self" if name == "x" else name: limit for name, limit in _limits(node, row).items()}
    limits: dict[fx.Node, int] = {}
    for name, value in call_arguments(node).items():
        several = zip(value, below[name]) if isinstance(value, list) and name in below else [(value, below.get(name))]
        limits.update({one: hint_of(limit) for one, limit in several if isinstance(one, fx.Node) and limit is not None})
    values = [(source, source.meta["val"]) for source in callout_inputs(node)]
    devices = {value.device for _, value in values if isinstance(value, torch.Tensor)}
    generators = {device: torch.Generator(device).manual_seed(0) for device in devices}
    return [
        drawn(value, generators[value.device], limits.get(source))
        if isinstance(value, torch.Tensor)
        else hint_of(value)
        for source, value in values
    ]


def _limits(node: fx.Node, row: Row) -> Mapping[str, Any]:
    return asked(row.below, call_arguments(node)) or {}


def _measured(calls: Sequence[Call], aten: Call, values: Sequence[Any]) -> Choice:
    """On the CPU, where kernels are interpreted, the first configuration is taken."""
    if not on_gpu(values):
        return Choice(0, dispatched=dispatched(calls[0], values))
    taken: dict[int, float] = {}
    failed = ""
    for place, call in enumerate(calls):
        try:
            taken[place] = seconds(call, values)
        except Exception as error:  # another compiler's fault, or more of a GPU than there is
            failed = f"{type(error).__name__}: {error}"
    if not taken:
        return Choice(None, failed=failed)
    best = min(taken, key=taken.__getitem__)
    reference = seconds(aten, values)
    chosen = best if taken[best] < reference else None
    return Choice(chosen, taken[best], reference, dispatched(calls[best], values))


def on_gpu(values: Sequence[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in values)


def seconds(call: Call, values: Sequence[Any]) -> float:
    """What a call takes in a stream of equal calls: the time of the device, or of the host where that is longer."""
    call(*values)  # the first call compiles
    once = _timed(call, values, 1)
    rounds = max(1, min(100, int(SPENT / REPEATS / once)))
    return min(_timed(call, values, rounds) for _ in range(REPEATS))


def _timed(call: Call, values: Sequence[Any], rounds: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        call(*values)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / rounds


def _key(node: fx.Node) -> str:
    """A digest of all that a choice depends on; "" where the call has no text of its own."""
    text = call_text(node)
    tensors = [value for source in callout_inputs(node) if isinstance(value := source.meta["val"], torch.Tensor)]
    if not text or not tensors:
        return ""
    import triton

    lies = [([hint_of(n) for n in (*value.shape, *value.stride())], str(value.dtype)) for value in tensors]
    device = torch.cuda.get_device_name(tensors[0].device) if tensors[0].is_cuda else "cpu"
    modes = (torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled())
    made_from = [text, lies, device, modes, torch.__version__, triton.__version__, code_digest(Path(__file__).parent)]
    return hashlib.sha256(repr(made_from).encode()).hexdigest()
