"""Where samples come from for overloads that no OpInfo is named after."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import torch
from torch import randn, tensor
from torch._ops import OpOverload

aten = torch.ops.aten
prims = torch.ops.prims

RELATED: dict[OpOverload, tuple[str, ...]] = {
    aten.threshold_backward.default: ("nn.functional.relu", "nn.functional.threshold"),
    aten.leaky_relu_backward.default: ("nn.functional.leaky_relu",),
    aten.hardtanh_backward.default: ("nn.functional.relu6", "nn.functional.hardtanh"),
    aten.elu_backward.default: ("nn.functional.elu", "nn.functional.celu", "nn.functional.selu"),
    aten.gelu_backward.default: ("nn.functional.gelu",),
    aten.silu_backward.default: ("nn.functional.silu",),
    aten.sigmoid_backward.default: ("sigmoid",),
    aten.tanh_backward.default: ("tanh", "nn.functional.tanhshrink"),
    aten.softplus_backward.default: ("nn.functional.softplus",),
    aten._log_softmax_backward_data.default: ("log_softmax",),
    aten._softmax_backward_data.default: ("softmax",),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
    ),
    aten.eq.Scalar: ("pow", "dist", "xlogy"),
    aten.ne.Scalar: ("cov", "isfinite", "nan_to_num", "count_nonzero"),
    aten.lt.Scalar: ("isin", "logit", "heaviside"),
    aten.le.Scalar: ("cov", "xlogy", "logit"),
    aten.gt.Scalar: ("logit", "special.entr", "nn.functional.celu"),
    aten.ge.Scalar: ("pow", "logit"),
    aten.where.ScalarOther: ("diag", "isin", "logit"),
    aten.where.ScalarSelf: ("sinc", "nansum", "nn.functional.hardswish"),
    aten.where.Scalar: ("heaviside", "special.entr"),
    aten.convolution.default: (
        "nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d",
        "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d",
    ),
    aten._to_copy.default: ("to", "int", "bool", "byte", "char", "half", "long", "float"),
    aten.alias.default: ("alias_copy",),
    aten.detach.default: ("t", "mv"),
    aten.lift_fresh.default: ("masked.sum",),
    aten._unsafe_view.default: ("kron", "matmul"),
    aten.narrow.default: ("nn.functional.glu",),
    aten.index.Tensor: ("isin", "__getitem__", "combinations", "nn.functional.unfold"),
    aten._unsafe_index.Tensor: ("nn.functional.pad", "nn.functional.interpolate"),
    aten.slice_backward.default: ("slice", "narrow", "diff"),
    aten.select_backward.default: ("select", "__getitem__"),
    aten.nll_loss_forward.default: ("nn.functional.nll_loss", "nn.functional.cross_entropy"),
    aten.nll_loss2d_forward.default: ("nn.functional.cross_entropy",),
    aten.nll_loss_backward.default: ("nn.functional.nll_loss", "nn.functional.cross_entropy"),
    aten.nll_loss2d_backward.default: ("nn.functional.cross_entropy",),
    aten.native_layer_norm_backward.default: ("native_layer_norm",),
    aten.native_group_norm_backward.default: ("native_group_norm",),
    aten.native_batch_norm_backward.default: ("native_batch_norm",),
    aten.add.Scalar: ("tan", "acos", "log1p"),
    aten.sub.Scalar: ("cov", "pow", "acosh"),
    aten.rsub.Scalar: ("logit", "nn.functional.glu"),
    aten.mul.Scalar: ("add", "erf", "var"),
    aten.div.Scalar: ("max", "mean", "clamp"),
    aten.clamp.default: ("nn.functional.hardswish", "nn.functional.hardsigmoid"),
    aten.clamp_min.default: ("nn.functional.normalize", "nn.functional.triplet_margin_loss"),
    aten.pow.Tensor_Scalar: ("tan", "dist", "norm", "pow"),
    aten.pow.Scalar: ("ldexp", "logaddexp2"),
    aten.max_pool2d_with_indices.default: ("nn.functional.max_pool2d",),
    aten.max_pool3d_with_indices.default: ("nn.functional.max_pool3d",),
    aten.max_pool3d_with_indices_backward.default: ("nn.functional.max_pool3d",),
    aten.avg_pool2d_backward.default: ("nn.functional.avg_pool2d",),
    aten.avg_pool3d_backward.default: ("nn.functional.avg_pool3d",),
    aten._adaptive_avg_pool2d_backward.default: ("nn.functional.adaptive_avg_pool2d",),
    aten._adaptive_avg_pool3d_backward.default: ("nn.functional.adaptive_avg_pool3d",),
    aten._unsafe_index_put.default: ("unfold", "nn.functional.unfold"),
    aten.grid_sampler_2d_backward.default: ("grid_sampler_2d",),
    aten.adaptive_max_pool2d.default: ("nn.functional.adaptive_max_pool2d",),
    aten.adaptive_max_pool2d_backward.default: ("nn.functional.adaptive_max_pool2d",),
    aten.adaptive_max_pool3d.default: ("nn.functional.adaptive_max_pool3d",),
    aten.adaptive_max_pool3d_backward.default: ("nn.functional.adaptive_max_pool3d",),
    aten.replication_pad1d_backward.default: ("nn.functional.pad",),
    aten.replication_pad2d_backward.default: ("nn.functional.pad",),
    aten.replication_pad3d_backward.default: ("nn.functional.pad",),
    aten.masked_scatter_backward.default: ("masked_scatter",),
    aten.linalg_solve_triangular.default: ("linalg.solve_triangular",),
    aten.embedding_dense_backward.default: ("nn.functional.embedding",),
    aten._linalg_det.default: ("linalg.det",),
    aten._cdist_forward.default: ("cdist",),
    aten._cdist_backward.default: ("cdist",),
    aten._pdist_forward.default: ("nn.functional.pdist",),
    aten._pdist_backward.default: ("nn.functional.pdist",),
    aten._trilinear.default: ("nn.functional.bilinear",),
    aten.rrelu_with_noise_backward.default: ("nn.functional.rrelu",),
    aten._linalg_slogdet.default: ("linalg.slogdet",),
    aten._linalg_solve_ex.default: ("linalg.solve",),
}  # fmt: skip
"""The OpInfos whose forward or backward holds the overload."""
RELATED[aten.convolution_backward.default] = RELATED[aten.convolution.default]

Arguments = tuple[Any, ...]


def integers(*shape: int, low: int = -5, high: int = 6) -> torch.Tensor:
    return torch.randint(low, high, shape)


def batch_norm(training: bool) -> list[Arguments]:
    return [
        (randn(3, 4, 5, 2), randn(4), randn(4), randn(4), torch.rand(4) + 0.5, training, 0.1, 1e-5),
        (randn(6, 4), None, None, randn(4), torch.rand(4) + 0.5, training, 0.3, 1e-3),
    ]


SOME_KEYS = tensor([[0.0, 0.0, 0.0], [-inf, -inf, -inf], [0.0, -inf, -inf], [-inf, 1.5, 0.0], [0.0, 0.0, -inf]])
"""An attention mask for five queries and three keys. The second query may ask for none."""


def attention(size: float, heads: int = 2) -> Arguments:
    """The larger the numbers, the less is left but the largest weight. More than two heads share two of keys."""
    return size * randn(1, heads, 5, 8), randn(1, 2, 3, 8), randn(1, 2, 3, 8)


def attention_gradient(heads: int = 2) -> Arguments:
    inputs = attention(1.0, heads)
    made = aten._scaled_dot_product_flash_attention_for_cpu.default(*inputs, attn_mask=SOME_KEYS)
    return randn(1, heads, 5, 8), *inputs, *made, 0.0, False


OWN: dict[OpOverload, Callable[[], list[Arguments]]] = {
    aten._cdist_backward.default: lambda: [
        (randn(0, 3, 4), randn(1, 3, 5), randn(0, 4, 5), 3.0, randn(0, 3, 4)),
        (randn(2, 3, 4), randn(2, 3, 5), randn(1, 4, 5), 3.0, torch.rand(2, 3, 4) + 1),
    ],
    aten.index_reduce.default: lambda: [
        (randn(4, 3), 0, tensor([0, 2, 0]), randn(3, 3), how) for how in ("amax", "mean", "prod")
    ],
    aten.std.correction: lambda: [(randn(3, 5) * 1e25, [1]), (randn(3, 5) * 1e-25,)],
    aten.linalg_vector_norm.default: lambda: [(tensor([1e30, -2.0]), 4, [0]), (tensor([[1e30], [-2.0]]), 4, [1])],
    aten._convert_indices_from_coo_to_csr.default: lambda: [
        (tensor([0, 0, 2, 5]), 6), (tensor([1, 1, 1], dtype=torch.int32), 3), (tensor([1, 4]), 5),
    ],
    aten.as_strided.default: lambda: [(randn(3, 5), [2, 2], [1, 2])],
    aten.true_divide.Tensor: lambda: [
        (randn(3, 4), randn(4)), (integers(3, 1), integers(4, low=1)), (tensor([1.0, -1.0, 0.0]), tensor(0.0)),
    ],
    aten.true_divide.Scalar: lambda: [(randn(3, 4), 3), (integers(5), 2), (tensor([1.0, -1.0, 0.0]), 0.0)],
    aten.square.default: lambda: [(randn(3, 4),), (integers(5),)],
    aten.isfinite.default: lambda: [(tensor([1.0, nan, inf, -inf, -0.0]),), (integers(3),)],
    aten.bitwise_and.Scalar: lambda: [(integers(7), 6), (integers(7) > 0, True)],
    aten.bitwise_or.Scalar: lambda: [(integers(7), 6), (integers(7) > 0, True)],
    aten.bitwise_xor.Scalar: lambda: [(integers(7), 6), (integers(7) > 0, True)],
    aten.bitwise_left_shift.Tensor_Scalar: lambda: [(integers(9), 3), (integers(9).to(torch.int32), 40)],
    aten.bitwise_right_shift.Tensor_Scalar: lambda: [(integers(9), 1), (integers(9).to(torch.int8), 9)],
    aten.fill.Tensor: lambda: [(randn(3, 4), tensor(2.5)), (integers(3), tensor(7))],
    aten.lift_fresh_copy.default: lambda: [(randn(3, 4),)],
    aten.view.dtype: lambda: [(randn(3, 4), torch.int32), (integers(3), torch.float64)],
    aten.copy.default: lambda: [(randn(3, 4), randn(4)), (integers(3), randn(3) * 5), (randn(2), integers(2) > 0)],
    aten._native_batch_norm_legit_functional.default: lambda: batch_norm(True) + batch_norm(False),
    aten._native_batch_norm_legit_no_training.default: lambda: [(*c[:5], *c[6:]) for c in batch_norm(False)],
    aten.div.Scalar_mode: lambda: [(randn(9) * 5, 1.5), (integers(9), 3), (integers(9), -2)],
    aten.floor_divide.Scalar: lambda: [(integers(9), 3), (integers(9), -2), (randn(9) * 9, 0.7)],
    aten.remainder.Scalar: lambda: [(integers(9), 3), (integers(9), -3), (randn(9) * 9, -0.7)],
    aten.remainder.Scalar_Tensor: lambda: [(7, integers(9, low=1)), (-7, integers(9, low=1)), (2.5, randn(9))],
    aten.fmod.Scalar: lambda: [(integers(9), 3), (integers(9), -3), (randn(9) * 9, -0.7)],
    aten.clamp_max.default: lambda: [(randn(9), 0.3), (integers(9), 2)],
    aten.avg_pool1d.default: lambda: [(randn(2, 3, 9), [3], [2], [1]), (randn(2, 3, 9), [2], [2], [0], True)],
    aten.slice.Tensor: lambda: [
        (randn(7, 3), 0, 1, -1, 2), (randn(7), 0, 5, 2), (randn(7, 3), -1, None, 99), (randn(3), 0, -99, None, 2),
    ],
    aten.index_put.default: lambda: [
        (randn(5, 3), [tensor([0, 2, 0, -1])], randn(4, 3), True), (randn(5, 3), [tensor([0, 4, -2])], randn(3)),
        (randn(3, 4), [randn(3, 4) > 0], tensor(2.0)), (randn(3, 4), [randn(3) > 0], randn(1, 4), True),
        (randn(4, 5, 6), [None, tensor([1, 1, 0]), tensor([2, 2, -1])], randn(4, 3), True),
        (randn(4, 5, 6), [tensor([[1], [2]]), None, tensor([0, 3, 3])], randn(2, 3, 5), True),
    ],
    aten.as_strided_scatter.default: lambda: [(randn(12), randn(2, 3), [2, 3], [3, 2], 1)],
    aten.embedding_dense_backward.default: lambda: [
        (randn(2, 3, 4), tensor([[0, 2, 2], [5, 0, 2]]), 6, -1, False),
        (randn(5, 4), tensor([0, 2, 2, 5, 2]), 6, 2, False), (randn(5, 4), tensor([0, 2, 2, 5, 2]), 6, 5, True),
    ],
    aten.max.dim: lambda: [(tensor([[1.0, nan, 3.0], [2.0, 2.0, 1.0]]), 1), (integers(4, 5) > 0, 0)],
    aten.sort.default: lambda: [
        (tensor([3.0, nan, 1.0, -0.0, 0.0, inf, 1.0]), 0, down) for down in (False, True)
    ],
    aten.argmin.default: lambda: [(tensor([[1.0, 0.5, 0.5], [2.0, nan, 1.0]]), 1), (randn(3, 4),)],
    aten.max_pool2d_with_indices.default: lambda: [
        (randn(2, 3, 7, 6), [3, 2], [2, 2], [1, 1]), (torch.ones(1, 2, 5, 5), [2, 2], [1, 1]),
        (randn(1, 2, 7, 7), [3, 3], [2, 2], [1, 1], [2, 2]), (randn(1, 2, 7, 7), [2, 2], [2, 2], [0, 0], [1, 1], True),
    ],
    aten.max_pool2d_with_indices_backward.default: lambda: [
        pooled([3, 2], [2, 2], [1, 1]), pooled([2, 2], [1, 1], [0, 0]),
    ],
    prims.iota.default: lambda: [(5,)],
    aten.arange.default: lambda: [(7,), (3.5,)],
    aten.copysign.Scalar: lambda: [(randn(5), -3.0), (integers(5), 2)],
    aten.replication_pad3d_backward.default: lambda: [(randn(1, 2, 4, 5, 7), randn(1, 2, 2, 3, 3), [3, 1, 0, 2, 1, 1])],
    aten._scaled_dot_product_flash_attention_for_cpu.default: lambda: [
        attention(1.0), (*attention(1e5), 0.0, True), attention(1.0, heads=6),
    ],
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: lambda: [
        attention_gradient(), attention_gradient(heads=6),
    ],
    aten.native_group_norm_backward.default: lambda: [
        (randn(2, 6, 4), randn(2, 6, 4), randn(2, 3), torch.rand(2, 3) + 0.5, weight, 2, 6, 4, 3,
         [True, *[weight is not None] * 2])
        for weight in (randn(6), None)
    ],
    aten._native_batch_norm_legit.no_stats: lambda: [(*c[:3], *c[5:]) for c in batch_norm(True)],
    aten._batch_norm_with_update_functional.default: lambda: [(*c[:5], *c[6:]) for c in batch_norm(True)[:1]],
    aten.batch_norm_backward.default: lambda: [
        (randn(3, 4, 5), randn(3, 4, 5), randn(4), randn(4), torch.rand(4), randn(4), torch.rand(4) + 0.5, update, 1e-5,
         [True, True, True], torch.empty(0, dtype=torch.uint8)) for update in (True, False)
    ],
    aten._weight_norm_interface.default: lambda: [(randn(3, 4, 2), randn(3, 1, 1), 0), (randn(4, 3), randn(1, 3), 1)],
    aten._weight_norm_interface_backward.default: lambda: [
        (randn(3, 4, 2), randn(3, 4, 2), randn(3, 1, 1), torch.rand(3, 1, 1) + 0.5, 0),
    ],
    aten._efficientzerotensor.default: lambda: [([3, 4],)],
    aten.frexp.Tensor: lambda: [(tensor([1.0, 0.5, -3.7, 1e-40, 1e-45, 3e38, 0.0, -0.0]),), (randn(5).double() * 1e9,)],
    aten.linalg_cholesky_ex.default: lambda: [(positive_definite(2, 4),), (positive_definite(3),)],
    aten.nonzero_static.default: lambda: [(integers(4, 5),), (randn(3) > 0,), (tensor(2.0),)],
    prims.convert_element_type.default: lambda: [(randn(4) * 9, torch.int32), (randn(4), torch.bfloat16)],
}  # fmt: skip
"""Arguments for the others."""

KEYWORDS: dict[OpOverload, list[dict[str, Any]]] = {
    aten.linalg_cholesky_ex.default: [{}, {"upper": True}],
    aten.nonzero_static.default: [{"size": 7}, {"size": 2, "fill_value": 9}],
    aten.index_reduce.default: [{"include_self": False}],
    prims.iota.default: [
        {"start": 2, "step": 3, "dtype": torch.int32, "device": torch.device("cpu"), "requires_grad": False},
    ],
    aten._scaled_dot_product_flash_attention_for_cpu.default: [{"attn_mask": SOME_KEYS}, {}],
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: [{"attn_mask": SOME_KEYS}],
    aten.div.Scalar_mode: [{"rounding_mode": "floor"}, {"rounding_mode": "trunc"}],
}
"""Keyword arguments that each of `OWN`'s calls is made with, where it needs some."""


def positive_definite(*shape: int) -> torch.Tensor:
    x = randn(*shape, shape[-1])
    return x @ x.mT + torch.eye(shape[-1])


def pooled(kernel: list[int], stride: list[int], padding: list[int]) -> Arguments:
    x = randn(2, 3, 8, 7)
    out, indices = aten.max_pool2d_with_indices.default(x, kernel, stride, padding)
    return torch.randn_like(out), x, kernel, stride, padding, [1, 1], False, indices
