"""What a node costs, estimated from the sizes of what it reads and gives; nothing is run.

FLOPs: for matrix products, convolutions and attention, forward and backward, the formulas of
`torch.utils.flop_counter` (a multiplication and an addition are two; m × k by k × n is 2·m·k·n); for any other op one
for each element that it gives. Bytes: what it reads, each tensor once, and what it gives; a dimension along which a
tensor is only repeated (stride 0) is not multiplied in. A view costs nothing of either. A symbolic size counts as the
size that it had when the graph was captured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from bridge.ir.nodes import aten, input_tensors, is_higher_order
from bridge.ir.shapes import SYMBOLIC, fake, leaves
from bridge.ir.trees import tree_map

SAME_AS: dict[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
}
"""Ops that torch's registry leaves out, and the op whose arguments and formula are theirs."""


@dataclass(frozen=True)
class Cost:
    """None: not known, since a size depends on values, or since the op runs graphs of its own."""

    flops: int | None
    bytes: int | None


class _Unknown(Exception):
    """A size has no value."""


def cost(node: fx.Node) -> Cost:
    """The estimate for one computing node, as this module's first words say."""
    if _is_view(node):
        return Cost(0, 0)
    try:
        read = [_sized(tensor) for tensor in input_tensors(node)]
        given = [_sized(leaf) for leaf in leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
        return Cost(_flops(node, given), sum(map(_bytes, [*read, *given])))
    except _Unknown:
        return Cost(None, None)


def _is_view(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (target.is_view or target is aten._unsafe_view.default)


def _flops(node: fx.Node, given: list[torch.Tensor]) -> int | None:
    formula = _formula(node.target)
    if formula is not None:
        args, kwargs, result = tree_map(_sized, (*fake((list(node.args), dict(node.kwargs))), node.meta.get("val")))
        return int(formula(*args, **kwargs, out_val=result))
    if is_higher_order(node.target):
        return None
    return sum(tensor.numel() for tensor in given)


def _formula(target: Any) -> Callable[..., Any] | None:
    packet = target.overloadpacket if isinstance(target, torch._ops.OpOverload) else target
    return flop_registry.get(SAME_AS.get(packet, packet))


def _bytes(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return tensor.numel() * tensor.element_size()
    held = math.prod(size for size, stride in zip(tensor.shape, tensor.stride()) if stride != 0 or size == 0)
    return held * tensor.element_size()


def _sized(value: Any) -> Any:
    """A tensor or a number with the sizes of the capture where its own are symbols."""
    if isinstance(value, SYMBOLIC):
        return _number(value)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    described = (*value.shape, *value.stride())
    if not any(isinstance(size, SYMBOLIC) for size in described):
        return value
    sizes, strides = [_number(size) for size in value.shape], [_number(stride) for stride in value.stride()]
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")


def _number(size: Any) -> Any:
    if not isinstance(size, SYMBOLIC):
        return size
    if not size.node.has_hint():
        raise _Unknown
    return size.node.hint
