"""Complex programs run in pairs of reals, lie in memory as eager's do, and give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db

import bridge
from bridge.ir.compiled import Way
from bridge.passes.complex_rules import RULES
from tests.backends.tvm.agreement import disagreement
from tests.backends.tvm.calls import Call, Recorder, aliases, record, spread
from tests.backends.tvm.samples import RELATED
from tests.backends.tvm.together import Together

aten = torch.ops.aten

OTHERS: dict[OpOverload, tuple[str, ...]] = {
    **RELATED,
    aten._conj_physical.default: ("conj_physical", "conj"),
    aten._conj.default: ("conj", "mul", "div"),
    aten.add.Scalar: ("add", "reciprocal"),
    aten.as_strided.default: ("as_strided", "as_strided.partial_views"),
    aten.copy.default: ("select_scatter", "fft.irfft", "fft.rfft"),
    aten.alias.default: ("linalg.eig", "alias_copy"),
    aten.detach.default: ("linalg.eig", "angle", "sgn"),
    aten.mul.Scalar: ("fft.hfft", "fft.irfft", "fft.ihfft"),
    aten.div.Scalar: ("mean", "fft.ihfft", "var"),
    aten.full.default: ("full", "where", "sqrt", "fft.fft2"),
    aten.scalar_tensor.default: ("sgn", "polar", "where", "div", "sqrt"),
    aten.sum.dim_IntList: ("sum", "add", "mul"),
    aten.squeeze.dims: ("squeeze.multiple", "stft"),
    aten.unbind.int: ("unbind", "stack"),
    aten.where.self: ("where", "sgn"),
    aten.eq.Scalar: ("eq", "pow", "sgn", "sqrt"),
    aten.ne.Scalar: ("ne", "isfinite", "count_nonzero"),
    aten._to_copy.default: ("to", "cfloat", "cdouble", "double", "float"),
    aten._unsafe_view.default: ("kron", "matmul", "reshape"),
    aten.slice.Tensor: ("slice", "narrow", "diff"),
    aten.rsub.Tensor: ("rsub",),
    aten.rsub.Scalar: ("rsub", "sigmoid"),
}
"""Entries whose complex samples call an overload."""


def complex_calls(op: OpOverload) -> list[Call]:
    """A few calls of an overload in which something is complex."""
    torch.manual_seed(0)
    recorder = Recorder(op)
    names = OTHERS.get(op, ())
    for info in op_db:
        if info.full_name in names or info.name in names or op._schema.name.split("::")[1] in aliases(info):
            for dtype in (torch.complex64, torch.float32):
                record(recorder, info, dtype)
    found = [call for call in recorder.calls.values() if is_complex(call)]
    return spread(found)


def is_complex(call: Call) -> bool:
    values = [*call.tensors, *torch.utils._pytree.tree_leaves(call())]
    return any(isinstance(value, Tensor) and value.is_complex() for value in values)


VIEWS_TOO = frozenset({Way.GENERATED, Way.LIBRARY})
"""Without the library for arithmetic, views of complex tensors are all that it runs."""


@pytest.mark.parametrize("op", RULES, ids=str)
def test_rule(op: OpOverload) -> None:
    calls = complex_calls(op)[:3]
    if not calls:
        pytest.skip("no entry calls it with complex numbers")
    results = Together(calls).as_a_program(VIEWS_TOO)
    wrong = [d for call, got in zip(calls, results, strict=True) if (d := disagreement(call, got))]
    assert not wrong, "\n".join(wrong)
