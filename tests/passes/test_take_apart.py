"""Complex programs run in pairs of reals, lie in memory as eager's do, and give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

import bridge
from bridge.conformance.agreement import disagreement
from bridge.conformance.calls import Call, Recorder, aliases, record, spread
from bridge.conformance.samples import RELATED
from bridge.conformance.together import Together
from bridge.ir.compiled import Way
from bridge.passes.complex_rules import RULES

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
    return spread([call for call in recorder.calls.values() if is_complex(call) and not by_mask(call)])


def is_complex(call: Call) -> bool:
    values = [*call.tensors, *tree_leaves(call())]
    return any(isinstance(value, Tensor) and value.is_complex() for value in values)


def by_mask(call: Call) -> bool:
    """Whether it writes where a mask says, which has no conversion."""
    return call.op is aten.index_put.default and any(tensor.dtype == torch.bool for tensor in call.tensors)


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


def spectrum(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    z = torch.fft.rfft(x, dim=-1) * w
    return torch.fft.irfft(z.conj() * 2, n=x.shape[-1]).sin(), z.abs(), z.transpose(0, 1), z.conj(), z.real, z.imag


def rotated(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    pairs = torch.view_as_complex(x.reshape(x.shape[0], -1, 2))
    turned = pairs * torch.polar(torch.ones(8), torch.linspace(0, 1, 8))
    return torch.view_as_real(turned).flatten(1), torch.view_as_real(w.exp())


def moved(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return w.t() / (x[:, :9].t() + 1j), w[1:, ::2], w.flip(0).real, torch.cat([w, w.conj()]), x[:, :9].to(w.dtype)


@pytest.mark.parametrize("conjugated", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("program", [spectrum, rotated, moved])
def test_program(program: Callable[..., Any], dtype: torch.dtype, conjugated: bool) -> None:
    """Values, layouts and gradients, of tensors that torch conjugates by a flag too."""
    compiled, found = bridge.compile(program), []
    for function in (program, compiled):
        torch.manual_seed(0)
        x = torch.randn(4, 16, requires_grad=True, dtype=dtype.to_real())
        w = torch.randn(4, 9, dtype=dtype, requires_grad=True)
        made = function(x, w.conj() if conjugated else w)
        gradients = torch.autograd.grad(made, [x, w], [torch.randn_like(m.detach()) for m in made], allow_unused=True)
        found.append((made, gradients))
    torch.testing.assert_close(*found)
    assert [m.stride() for m in found[1][0]] == [m.stride() for m in found[0][0]]
    assert not sum(ways["fallback"] for ways in compiled.placement.values())


def test_zeros_that_have_no_memory_are_read() -> None:
    """The gradient of a result that nobody uses."""
    compiled = bridge.compile(lambda z: (z * 2, z.exp()))
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    made = compiled(z)[0]
    made.backward(aten._efficientzerotensor.default([3], dtype=torch.complex64))
    assert z.grad is not None
    assert not z.grad.any()
