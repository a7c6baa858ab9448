"""Types are promoted as torch promotes them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes, get_computation_dtype

from bridge.ir.promotion import Promote, computation_type, element_types

TYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64,
)  # fmt: skip
NUMBERS = (True, 2, 2.5)


def values() -> list[Any]:
    tensors = [torch.empty(shape, dtype=dtype, device="meta") for dtype in TYPES for shape in ((), (3,))]
    return [*tensors, *NUMBERS]


@pytest.mark.parametrize("rule", Promote)
def test_rules_are_torchs(rule: Promote) -> None:
    for pair in product(values(), values()):
        for given in (pair, pair[:1], (*pair, torch.empty((), dtype=torch.int16, device="meta"))):
            expected = elementwise_dtypes(*given, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND[rule.name])
            assert element_types(given, rule) == expected, given


@pytest.mark.parametrize("dtype", TYPES)
def test_computation_type_is_torchs(dtype: torch.dtype) -> None:
    assert computation_type(dtype) == get_computation_dtype(dtype)
