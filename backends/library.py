"""Library: what is called out to ATen by choice, since a vendor's library runs it faster or torch has to draw it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from bridge.ir.backend import Refusal
from bridge.ir.callout import callout, effect_of
from bridge.ir.nodes import draws, op_name
from bridge.ledger import DeadEnd

aten = torch.ops.aten

VENDOR = frozenset(
    {
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten.baddbmm.default,
        aten.convolution.default,
        aten.convolution_backward.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_flash_attention_backward.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_efficient_attention_backward.default,
        aten.topk.default,
    }
)
"""Matrix products, convolutions and attention: oneDNN, MKL, cuBLAS and cuDNN have them. And the choice of the largest:
ATen's partial sort is quick, and which of equal elements it takes decides what a model with such a choice computes."""


CHECKS = frozenset(
    {
        aten._assert_async.msg,
        aten._assert_async.default,
        aten._assert_scalar.default,
        aten._linalg_check_errors.default,
    }
)
"""What computes nothing and raises torch's own error, where it has to."""


class Library:
    """Takes matrix products, convolutions, attention and topk if `vendor`, and random ops and checks always.

    Random ops are torch's own: drawn in program order from torch's generator, a seed means what it means in eager.
    """

    name = "library"

    def __init__(self, vendor: bool = True) -> None:
        self.vendor = vendor

    def accepts(self, node: fx.Node) -> Refusal | None:
        if draws(node) or (effect_of(node) or node.target) in CHECKS or (self.vendor and node.target in VENDOR):
            return None
        return Refusal(DeadEnd.COVERAGE, f"{op_name(node)} is not called from a library", "no library")

    def build(self, node: fx.Node) -> tuple[Callable[..., Any], dict[str, int]]:
        return callout(node)
