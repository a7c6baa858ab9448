"""Library: what is called out to ATen by choice, since a vendor's library runs it faster or torch has to draw it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from bridge.ir.backend import Refusal
from bridge.ir.callout import callout, effect_of
from bridge.ir.convolutions import asks_for_weight_alone, is_slow_depthwise, is_small, is_small_gradient
from bridge.ir.nodes import READS, draws, op_name
from bridge.ir.shapes import new_symbols_of, real_symbols_of, tensors_of
from bridge.ir.views import is_view
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
        aten._scaled_dot_product_cudnn_attention.default,
        aten._scaled_dot_product_cudnn_attention_backward.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_efficient_attention_backward.default,
        aten.topk.default,
        aten.sort.default,
        aten._fft_c2c.default,
        aten._fft_c2r.default,
        aten._fft_r2c.default,
        aten._linalg_det.default,
        aten._linalg_eigh.default,
        aten._linalg_eigvals.default,
        aten._linalg_slogdet.default,
        aten._linalg_solve_ex.default,
        aten._linalg_svd.default,
        aten.cholesky_inverse.default,
        aten.cholesky_solve.default,
        aten.geqrf.default,
        aten.linalg_cholesky_ex.default,
        aten.linalg_eig.default,
        aten.linalg_householder_product.default,
        aten.linalg_inv_ex.default,
        aten.linalg_ldl_factor_ex.default,
        aten.linalg_ldl_solve.default,
        aten.linalg_lu.default,
        aten.linalg_lu_factor_ex.default,
        aten.linalg_lu_solve.default,
        aten.linalg_qr.default,
        aten.linalg_solve_triangular.default,
        aten.masked_select.default,
        aten.nonzero.default,
        aten.ormqr.default,
        aten.repeat_interleave.Tensor,
        aten.triangular_solve.default,
        aten._unique2.default,
        aten.unique_consecutive.default,
        aten.unique_dim.default,
    }
)
"""Matrix products, convolutions and attention: oneDNN, MKL, cuBLAS and cuDNN have them. Fourier transforms, which MKL
has, and LAPACK's factors of matrices. And the choice of the largest, and sorting that need not be stable: ATen is
quick at them, and which of equal elements it takes decides what a model with such a choice computes. And what tells
by values how many elements there are, before anything can be made of them."""


PRODUCTS = {aten.mm.default: 0, aten.addmm.default: 1, aten.bmm.default: 0, aten.baddbmm.default: 1}
"""Matrix products, and which of their arguments is the first factor."""

SMALL = 16384
"""Multiplications up to which a product on the CPU costs the library's call more than its arithmetic: a kernel takes
0.55 to 1.1 of the time, and can take in what stands around the product. At twice that the two are level."""

SMALL_ON_A_GPU = 1 << 22
"""The same on a GPU: there a library's call costs the host 30 µs and more, and a kernel of this size 4 µs."""

GROUPED = frozenset({"transformers.grouped_mm_fallback.default", "transformers.grouped_mm_fallback_backward.default"})
"""Products of groups of rows, by name, since their library registers them when it is imported. Each group is a product
of ATen's inside of them."""

LARGE_GROUPED = 1 << 20
"""Multiplications from which such an op is called on a CPU: below, its call takes as long as a kernel, or longer."""


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
    """Takes what `VENDOR` names, but small products and convolutions and some gradients of weights, if `vendor`; always
    random ops, checks, and what reads a number.

    Random ops are torch's own: drawn in program order from torch's generator, a seed means what it means in eager.
    And what writes a float that is known only as the program runs: a kernel is given whole numbers alone.
    Views of complex tensors too, which cost nothing and which no kernel can hold, and views of what values decide.
    """

    name = "library"

    def __init__(self, vendor: bool = True) -> None:
        self.vendor = vendor

    def accepts(self, node: fx.Node) -> Refusal | None:
        if draws(node) or (effect_of(node) or node.target) in CHECKS or node.target in READS or self._calls(node):
            return None
        if node.target is aten.scalar_tensor.default and real_symbols_of(node):
            return None
        if is_view(node) and new_symbols_of(node):
            return None
        if is_view(node) and any(tensor.is_complex() for tensor in tensors_of(node)):
            return None
        return Refusal(DeadEnd.COVERAGE, f"{op_name(node)} is not called from a library", "no library")

    def _calls(self, node: fx.Node) -> bool:
        """Whether a vendor's library is called for what it is quick at."""
        if not self.vendor or is_small_product(node) or is_weight_of_depthwise(node):
            return False
        if is_small(node) or is_small_gradient(node):
            return False
        return node.target in VENDOR or is_large_grouped(node)

    def build(self, node: fx.Node) -> tuple[Callable[..., Any], dict[str, int]]:
        function, dispatched = callout(node)
        return (as_pairs if node.target is aten.view_as_real.default else function), dispatched


def as_pairs(whole: torch.Tensor) -> torch.Tensor:
    """`view_as_real` also of what torch conjugates by a flag, or holds zeros of without any memory."""
    if whole.is_conj():
        whole = whole.resolve_conj()
    return torch.view_as_real(torch.zeros_like(whole) if whole._is_zerotensor() else whole)


def is_weight_of_depthwise(node: fx.Node) -> bool:
    """Whether a node is the gradient of a depthwise convolution's weight alone, and better a kernel's."""
    return is_slow_depthwise(node) and asks_for_weight_alone(node)


def is_small_product(node: fx.Node) -> bool:
    """Whether a node is a product of matrices that are small, and known to be."""
    if node.target not in PRODUCTS:
        return False
    result, factor = node.meta["val"], node.args[PRODUCTS[node.target]].meta["val"]  # type: ignore[union-attr]
    sizes = [*result.shape, factor.shape[-1]]
    if result.is_complex():
        return False
    if result.device.type == "cpu" and is_of_vectors(sizes[-3:]):
        return True
    limit = {"cpu": SMALL, "cuda": SMALL_ON_A_GPU}.get(result.device.type, 0)
    return all(isinstance(n, int) for n in sizes) and math.prod(sizes) <= limit


def is_of_vectors(sizes: Sequence[int | torch.SymInt]) -> bool:
    """Whether a product of these rows, columns and inner size is an outer or an inner one of vectors.

    Each element is then read once, so a library has nothing to gain, however many there are.
    """
    rows, columns, inner = (isinstance(n, int) and n == 1 for n in sizes)
    return inner or (rows and columns)


def is_large_grouped(node: fx.Node) -> bool:
    """Whether a node is a product of groups of rows on a CPU, and known to be large."""
    if op_name(node) not in GROUPED:
        return False
    given, weight = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
    sizes = [given.shape[0], *weight.shape[1:]]
    return given.device.type == "cpu" and all(isinstance(n, int) for n in sizes) and math.prod(sizes) >= LARGE_GROUPED
