"""Calls on which a launcher is compared with ATen. Sizes are small: kernels are interpreted where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any

import torch
from torch import arange, rand, randint, randn, randperm, tensor
from torch._ops import OpOverload

aten = torch.ops.aten

Arguments = tuple[Any, ...]

EXTREMES = tensor([1.0, -inf, 2.0, inf, -0.0, 0.0, nan, 2.0, 5.0])
LOW = tensor([-inf, -inf, -1.0, -20.0, 0.0])


def lines(*more: Arguments) -> list[Arguments]:
    """Along every dimension, cut and whole, of a view, of one element and of none."""
    calls = [(randn(100), 0), (randn(3, 20), 1), (randn(2, 19, 3), 1), (randn(2, 5, 3).permute(1, 2, 0), -2)]
    return [*calls, (EXTREMES, 0), (tensor(3.0), 0), (randn(0, 3), 1), (randn(20).double(), 0), *more]


def numbers() -> list[Arguments]:
    return [(randint(-3, 4, (5, 21)), 1), (rand(5, 21) > 0.5, 0), (randint(-3, 4, (21,), dtype=torch.int32), 0)]


def rows() -> list[torch.Tensor]:
    """Equal elements among them, of every type that is sorted."""
    x = randn(2, 11)
    x[0, :9], x[1, 4:8], x[1, 6] = EXTREMES, 0.0, -0.0
    whole = [randint(-4, 4, (2, 9), dtype=dtype) for dtype in (torch.int32, torch.int16, torch.int8)]
    return [
        x,
        x.half(),
        x.bfloat16(),
        *whole,
        randint(0, 255, (3, 5), dtype=torch.uint8),
        rand(3, 5) > 0.5,
        randn(4, 0),
    ]


def distinct() -> list[torch.Tensor]:
    return [randperm(120).float().reshape(3, 40), randperm(60).bfloat16().reshape(5, 3, 4).transpose(0, 1)]


def permutations(count: int, size: int) -> torch.Tensor:
    return torch.stack([randperm(size) for _ in range(count)])


def scatters(source: Callable[..., Any] = randn) -> list[Arguments]:
    return [
        (randn(3, 4, 5), 1, randint(0, 4, (2, 3, 4)), source(3, 4, 5)),
        (randn(3, 4, 5).permute(2, 0, 1), -1, randint(0, 4, (2, 3, 4)), source(2, 4, 4)),
        (randn(3, 4), 1, randint(0, 4, (4, 3)).t(), source(4, 3).t()),
        (randn(()), 0, tensor(0), source(())),
        (randn(3, 4), 0, randint(0, 3, (0, 4)), source(0, 4)),
        (randn(3, 4).bfloat16(), 0, randint(0, 3, (40, 4)), source(40, 4).bfloat16()),
        (randint(0, 9, (3, 4)), 0, randint(0, 3, (9, 4)), randint(0, 9, (9, 4))),
        (randint(0, 9, (4,), dtype=torch.int8), 0, randint(0, 4, (90,)), randint(0, 9, (90,), dtype=torch.int8)),
    ]


def written(index: list[torch.Tensor | None], *shape: int, dtype: torch.dtype = torch.float32) -> Arguments:
    """A call whose indices name no element twice."""
    return randn(3, 4, 5, 6).to(dtype), index, randn(shape).to(dtype)


def indexed() -> list[Arguments]:
    return [
        written([None, randint(-4, 4, (2, 3)), randint(-5, 5, (3,))], 3, 2, 3, 6),
        written([randint(-3, 3, (2, 1)), None, randint(-5, 5, (3,), dtype=torch.int32)], 2, 3, 4, 1),
        written([randint(0, 3, (7,))], 7, 4, 5, 6, dtype=torch.bfloat16),
        written([tensor(2), None, tensor([1, 1])], 1),
        (randn(6, 5).t(), [None, randint(0, 6, (0,))], randn(5, 0)),
    ]


def products(*before: Callable[[int, int], torch.Tensor]) -> list[Arguments]:
    """Of batches, compact, transposed and of 16 bits; and with an empty sum."""
    made = [(randn(2, 20, 35), randn(2, 35, 18)), (randn(2, 35, 20).mT, randn(2, 18, 35).mT)]
    made += [(randn(2, 5, 9).half(), randn(2, 9, 6).half()), (randn(2, 5, 0), randn(2, 0, 6))]
    return [(*(make(a.shape[1], b.shape[2]).to(a.dtype) for make in before), a, b) for a, b in made]


def first(calls: list[Arguments]) -> list[Arguments]:
    """The products of the first of the batch."""
    return [tuple(x[0] if x.dim() == 3 else x for x in call) for call in calls]


def row(rows: int, columns: int) -> torch.Tensor:
    return randn(columns)


def whole(rows: int, columns: int) -> torch.Tensor:
    return randn(2, rows, columns)


def peaked() -> list[Arguments]:
    """Rows of one tile and of several, with infinities, and of 16 bits."""
    low, high, none = EXTREMES.clone(), LOW.clone(), torch.full((20,), -inf)
    late = none.clone()
    late[18:] = tensor([2.0, 1.0])
    rows = [randn(3, 7), 9 * randn(2, 2, 37), randn(4, 20).t(), low[:3], high, none, late, tensor(2.0), randn(0, 3)]
    return [(x, -1, False) for x in [*rows, randn(2, 21).bfloat16(), randn(3, 5).double()]]


def pulled(op: OpOverload) -> list[Arguments]:
    return [(torch.randn_like(x), op(x, -1, False), -1, x.dtype) for x, *_ in peaked()]


def normed(rows: int, width: int, dtype: torch.dtype = torch.float32) -> Arguments:
    x = randn(2, rows, width).to(dtype)
    mean, spread = x.float().mean(-1, keepdim=True), x.float().var(-1, keepdim=True, correction=0)
    weight, bias = randn(2, width).to(dtype)
    return randn(2, rows, width).to(dtype), x, [width], mean, (spread + 1e-5).rsqrt(), weight, bias, [True] * 3


def centred() -> list[Arguments]:
    plain = normed(3, 20)
    return [normed(7, 33), normed(2, 9, torch.bfloat16), (*plain[:5], None, None, [True, False, False])]


def uncentred() -> list[Arguments]:
    """RMS norm: what it divides by is no deviation."""
    spreads = [(call, (call[1].float().square().mean(-1, keepdim=True) + 1e-5).rsqrt()) for call in centred()]
    return [(*call[:3], spread, call[5], [True, call[5] is not None]) for call, spread in spreads]


def rms_gradients(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """By autograd, since no CPU has the overload."""
    x, weight = given["input"].detach().requires_grad_(), given["weight"]
    weight = None if weight is None else weight.detach().requires_grad_()
    y = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    leaves = [one for one in (x, weight) if one is not None]
    made = torch.autograd.grad(y if weight is None else y * weight, leaves, given["grad_out"])
    return (*made, None)[:2]


REFERENCES = {aten._fused_rms_norm_backward.default: rms_gradients}
"""What is compared with instead of the overload itself."""


SAMPLES: dict[OpOverload, Callable[[], list[Arguments]]] = {
    aten.cumsum.default: lambda: lines(
        *numbers(), (randn(40).half(), 0), (randn(40).double(), 0, torch.float32), (3 * randn(40), 0, torch.int64)
    ),
    aten.cumprod.default: lambda: lines(*numbers()),
    aten.logcumsumexp.default: lambda: lines((LOW, 0), (randn(9).bfloat16(), 0)),
    aten.cummax.default: lambda: lines(*numbers()),
    aten.cummin.default: lambda: lines(*numbers()),
    aten.sort.stable: lambda: [(x, True, dim, down) for x in rows() for dim, down in ((1, False), (0, True))],
    aten.sort.default: lambda: [(x, dim, down) for x in distinct() for dim, down in ((-1, True), (0, False))],
    aten.topk.default: lambda: [(x, k, -1, up) for x in distinct() for k, up in ((1, True), (3, False))],
    aten.scatter_add.default: scatters,
    aten.scatter_reduce.two: lambda: [(*call, "sum") for call in scatters()],
    aten.scatter.src: lambda: [
        (randn(3, 4), 1, permutations(3, 4), randn(3, 4)),
        (randn(4, 3).t(), -1, permutations(2, 4)[:, :3], randn(3, 5)),
        (rand(3, 4) > 0.5, 1, permutations(3, 4), rand(3, 4) > 0.5),
    ],
    aten.scatter.value: lambda: [(randn(3, 4), 1, randint(0, 4, (3, 1)), 2.5), (tensor(1), 0, tensor(0), 3)],
    aten.index_add.default: lambda: [
        (randn(3, 4), 1, randint(0, 4, (6,)), randn(3, 6)),
        (randn(3, 4).half().t(), 0, randint(0, 4, (6,), dtype=torch.int32), randn(6, 3).half()),
        (randn(()), 0, tensor([0]), randn(())),
    ],
    aten.index_put.default: lambda: [
        *((*call, True) for call in indexed()),
        written([None, tensor([3, -4]), tensor([[0], [-1]])], 3, 2, 2, 6),
        written([permutations(1, 3)[0]], 3, 4, 5, 6),
    ],
    aten._unsafe_index_put.default: lambda: [written([None, None, arange(5)], 1)],
    aten.native_layer_norm_backward.default: centred,
    aten._fused_rms_norm_backward.default: uncentred,
    aten._softmax.default: peaked,
    aten._log_softmax.default: peaked,
    aten._softmax_backward_data.default: lambda: pulled(aten._softmax.default),
    aten._log_softmax_backward_data.default: lambda: pulled(aten._log_softmax.default),
    aten.mm.default: lambda: first(products()),
    aten.bmm.default: products,
    aten.addmm.default: lambda: [
        *first(products(row)),
        *(((*call, 0, 0.5)) for call in first(products(lambda *_: tensor([nan])))[:1]),
        *((*call, 2.0, 0.5) for call in first(products(whole))[:1]),
    ],
    aten.baddbmm.default: lambda: [(*call, 0.5, 2) for call in products(whole)],
    aten._addmm_activation.default: lambda: [(*first(products(row))[0], 1, 1, False), first(products(row))[1]],
    aten.embedding_dense_backward.default: lambda: [
        (randn(2, 5, 7), randint(0, 4, (2, 5)), 6, 2, False),
        (randn(70, 3).bfloat16(), randint(0, 2, (70,), dtype=torch.int32), 2, -1, False),
        (randn(0, 3), randint(0, 2, (0,)), 2, -1, False),
    ],
}
"""By overload, calls of it. They cover what the row says of itself; `same as ATen` is the rest."""
