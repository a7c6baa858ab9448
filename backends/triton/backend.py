"""Triton: kernels of ours for what TVM does not hold on a GPU, each taken where it is quicker than ATen."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from bridge.backends.triton.measure import Choice, choice
from bridge.backends.triton.table import CONFIG, Row, table
from bridge.ir.backend import Refusal
from bridge.ir.call import hint_of
from bridge.ir.callout import calling
from bridge.ir.nodes import op_name
from bridge.ir.rows import asked, unsupported_argument
from bridge.ir.schema import call_arguments
from bridge.ir.shapes import symbols_of, tensors_of
from bridge.ledger import DeadEnd

UNHELD = (torch.complex32, torch.complex64, torch.complex128)


class Triton:
    """Takes the nodes that a row launches, on a GPU, where the row's kernel was measured to be quicker than ATen.

    cached: keep what was measured on disk. measures: False takes every node that a row takes, and measures nothing.
    """

    name = "triton"

    def __init__(self, cached: bool = True, measures: bool = True) -> None:
        self._cached, self._measures = cached, measures
        self._chosen: dict[fx.Node, Choice] = {}

    def accepts(self, node: fx.Node) -> Refusal | None:
        """Measures the first node of its kind, unless the cache has the answer."""
        refusal = refused(node)
        if refusal is not None or not self._measures:
            return refusal
        if not all(isinstance(hint_of(n), int) for tensor in tensors_of(node) for n in tensor.shape):
            detail = f"{op_name(node)} has sizes that depend on values, so there is nothing to measure it at"
            return Refusal(DeadEnd.DYNAMIC_SHAPE, detail, "symbolic size")
        chosen = self._choice(node)
        if chosen.failed:
            return Refusal(DeadEnd.MAINTENANCE, f"Triton failed: {chosen.failed}", "build failed")
        if chosen.config is None:
            times = f"{chosen.ours / chosen.aten:.1f}"
            return Refusal(DeadEnd.COVERAGE, f"ATen is {times} times as fast as Triton at these shapes", "slower")
        return None

    def build(self, node: fx.Node) -> tuple[Callable[..., Any], dict[str, int]]:
        """The launcher with the configuration that was chosen."""
        chosen = self._choice(node)
        row = table()[node.target]  # type: ignore[index]
        return launcher(node, row, row.configs[chosen.config or 0]), dict(chosen.dispatched)

    def _choice(self, node: fx.Node) -> Choice:
        if node not in self._chosen:
            row = table()[node.target]  # type: ignore[index]
            calls = [launcher(node, row, config) for config in row.configs]
            self._chosen[node] = choice(node, row, calls, self._cached)
        return self._chosen[node]


def launcher(node: fx.Node, row: Row, config: Any) -> Callable[..., Any]:
    """The node as a function of the values of `callout_inputs(node)`."""
    arguments = call_arguments(node)
    named = {"x" if name == "self" else name: arguments[name] for name in row.parameters}
    if any(row.configs):
        named[CONFIG] = config
    call = calling(node, row.fn, (), named)

    def launch(*values: Any) -> Any:
        return call(*[written_out(value) if isinstance(value, torch.Tensor) else value for value in values])

    device = tensors_of(node)[0].device
    return launch if device.type == "cpu" or torch.cuda.device_count() == 1 else on_device(device, launch)


def on_device(device: torch.device, launch: Callable[..., Any]) -> Callable[..., Any]:
    """Triton launches on torch's current device, wherever the tensors are."""

    def launch_there(*values: Any) -> Any:
        with torch.cuda.device(device):
            return launch(*values)

    return launch_there


def written_out(x: torch.Tensor) -> torch.Tensor:
    """A kernel reads memory as it is, and torch may negate it by a flag, or hold zeros without any."""
    return x.clone() if x.is_neg() or x._is_zerotensor() else x


def refused(node: fx.Node) -> Refusal | None:
    """Why no kernel of ours is given a node, or None; nothing of Triton is imported where the node is on a CPU."""
    tensors = tensors_of(node)
    elsewhere = sorted({str(tensor.device.type) for tensor in tensors if tensor.device.type != "cuda"})
    if not interpreting() and (elsewhere or not tensors):
        return coverage(f"Triton's kernels run on CUDA, not on {' and '.join(elsewhere) or 'numbers'}", "device")
    row = table().get(node.target) if isinstance(node.target, OpOverload) else None
    if row is None:
        return coverage(f"no Triton kernel for {op_name(node)}", "no row")
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.dtype in UNHELD:
            return coverage(f"{tensor.layout} tensors of {tensor.dtype} are not supported", "dtype")
    if symbols_of(node) and not row.symbolic:
        return Refusal(DeadEnd.DYNAMIC_SHAPE, f"{row.op} is not launched with symbolic sizes", "symbolic size")
    arguments = call_arguments(node)
    detail = unsupported_argument(row.op, row.parameters, node, arguments) or asked(row.refuses, arguments)
    if detail is None and not row.ordered and torch.are_deterministic_algorithms_enabled():
        detail = "its sums are made in any order, and deterministic algorithms are asked for"
    return coverage(detail, "row refuses") if detail is not None else None


def coverage(detail: str, kind: str) -> Refusal:
    return Refusal(DeadEnd.COVERAGE, detail, kind)


def interpreting() -> bool:
    """Whether Triton runs kernels in its interpreter, on the CPU too."""
    return os.environ.get("TRITON_INTERPRET") == "1"
