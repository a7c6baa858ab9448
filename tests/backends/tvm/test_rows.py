"""Every row against eager: through the bridge's own kernels, and with symbolic sizes where the row says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from math import nan

import pytest
import torch
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from bridge.backends.tvm.refuse import refusal
from bridge.backends.tvm.table import table
from bridge.conformance.agreement import disagreement
from bridge.conformance.calls import Call, calls_of
from bridge.conformance.together import Together
from bridge.conformance.variants import layouts, only_one_kind, specials, variants
from bridge.ir.joint import Graph, Phase, Role
from bridge.ir.shapes import symbols_of
from bridge.ledger import Ledger
from bridge.options import Options
from bridge.pipeline import compile_graph

aten = torch.ops.aten

ROWS = table()
SYMBOLIC = [op for op, row in ROWS.items() if row.symbolic]


OF_ITS_LAYOUT = ("must be contiguous", "view size is not compatible", "out of bounds for storage")
"""What torch says of a call that it does not take because of how tensors lie in memory."""


def taken(calls: Iterable[Call], most: int | None = None) -> list[Call]:
    """The calls that the row takes, and torch too, so many at most."""
    return list(islice((c for c in calls if is_a_sample(c) and refusal(Together([c]).nodes[0]) is None), most))


def is_a_sample(call: Call) -> bool:
    """Whether torch takes it however it lies in memory."""
    try:
        call()
    except RuntimeError as error:
        if not any(reason in str(error) for reason in OF_ITS_LAYOUT):
            raise
        return False
    return True


def compare(calls: Sequence[Call], results: Sequence[list[torch.Tensor]]) -> None:
    wrong = [d for call, got in zip(calls, results, strict=True) if (d := disagreement(call, got))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("op", ROWS, ids=str)
def test_row(op: OpOverload) -> None:
    """A few of torch's samples, and one of them with special values, without elements and without dimensions."""
    calls = taken(calls_of(op), 3)
    assert calls, f"no sample of {op} is taken"
    calls += taken(variants(ROWS[op], calls[0]))
    compare(calls, Together(calls).as_a_program())


@pytest.mark.parametrize("op", SYMBOLIC, ids=str)
def test_row_with_symbolic_sizes(op: OpOverload) -> None:
    refused = []
    for call in (c for c in calls_of(op) if taken([c])):
        together = Together([call], symbolic=True)
        if not symbols_of(together.nodes[0]):
            continue
        refused.append(refusal(together.nodes[0]))
        if refused[-1] is None:
            compare([call], together.as_a_program())
            return
    assert not refused, f"the row claims symbolic sizes and takes none: {refused}"
    pytest.skip("sizes of this op come from its arguments: see test_sizes_that_come_from_arguments")


@pytest.mark.slow
@pytest.mark.parametrize("op", ROWS, ids=str)
def test_row_on_the_machine(op: OpOverload) -> None:
    """All samples, on TVM's virtual machine without the bridge's own kernels."""
    calls = taken(calls_of(op))
    compare(calls, Together(calls).on_the_machine())


@pytest.mark.slow
@pytest.mark.parametrize("op", ROWS, ids=str)
def test_row_in_every_layout(op: OpOverload) -> None:
    """With an offset, strided and expanded; more samples, special values in each."""
    calls = taken(calls_of(op))
    others = [v for c in calls[:3] for v in (*layouts(c), *only_one_kind(c))]
    more = taken([*others, *(v for c in calls for v in specials(c))])
    compare(more, Together(more).as_a_program())


def test_max_pools_name_the_last_nan() -> None:
    """The gradient of a window goes to the element that is named."""
    x = torch.tensor([[[[1.0, nan, 3.0, 3.0], [nan, 2.0, 3.0, 4.0], [3.0, 3.0, nan, 4.0], [1.0, nan, nan, 0.0]]]])
    calls = [
        Call(aten.max_pool2d_with_indices.default, (x, [2, 2], [1, 1]), {}),
        Call(aten.max_pool3d_with_indices.default, (x, [1, 3, 2], [1, 1, 1], [0, 1, 1]), {}),
        Call(aten.adaptive_max_pool2d.default, (x, [3, 2]), {}),
        Call(aten.adaptive_max_pool3d.default, (x, [1, 2, 3]), {}),
    ]
    compare(calls, Together(calls).as_a_program())


def test_sizes_that_come_from_arguments() -> None:
    """What makes a tensor out of numbers takes symbolic ones, as sizes and as values."""

    def made(x: torch.Tensor) -> list[torch.Tensor]:
        n = x.shape[0]
        return [
            torch.arange(n), torch.arange(1, n * 2, 2), torch.full((n, 2), 1.5), torch.full((3,), n),
            torch.zeros(n), torch.ones(2, n), x.new_full((n,), 4), x.new_zeros(n + 1), x.new_ones(n),
            torch.eye(n), torch.scalar_tensor(n), x * n, x + n, x.expand(3, n), x.repeat(2),
        ]  # fmt: skip

    x = torch.randn(7)
    module = make_fx(made, tracing_mode="symbolic")(x)
    ledger = Ledger()
    graph = Graph("sizes", Phase.INFERENCE, module, (Role.INPUT,), (Role.OUTPUT,) * 15)
    compiled = compile_graph(graph, Options(library=False), ledger)
    assert not len(ledger), list(ledger)
    for length in (7, 4):
        x = torch.randn(length)
        for mine, theirs in zip(compiled.run([x]), made(x), strict=True):
            torch.testing.assert_close(mine, theirs)
