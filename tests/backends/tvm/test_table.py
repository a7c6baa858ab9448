"""The table's contract: what a call is told, and what a row may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import randn

from bridge.backends.tvm import table as tables
from bridge.backends.tvm.ops import pointwise
from bridge.backends.tvm.refuse import refusal
from bridge.backends.tvm.table import Conversion, converts, missing, present, promoted, table
from bridge.conformance.calls import Call
from bridge.conformance.together import Together
from bridge.ir.backend import Refusal
from bridge.ledger import DeadEnd

aten = torch.ops.aten


def told(op: Any, *args: Any, symbolic: bool = False, **kwargs: Any) -> Refusal | None:
    return refusal(Together([Call(op, args, kwargs)], symbolic).nodes[0])


def test_a_call_that_a_row_names_is_taken() -> None:
    assert told(aten.sum.dim_IntList, randn(3, 4), [1], True, dtype=torch.float64) is None


def test_an_argument_that_the_row_does_not_name_is_refused_in_its_words() -> None:
    refused = told(aten.embedding.default, randn(3, 4), torch.tensor([1]), -1, False, True)
    assert refused == Refusal(DeadEnd.COVERAGE, "sparse=True is not supported", "row refuses")


def test_neutral_arguments_never_refuse() -> None:
    plain = {"layout": torch.strided, "device": torch.device("cpu"), "pin_memory": False}
    assert told(aten.full.default, [2], 1.0, **plain) is None
    assert told(aten.clone.default, randn(2), memory_format=torch.preserve_format) is None


def test_another_device_than_the_graphs_is_refused() -> None:
    refused = told(aten._to_copy.default, randn(2), device=torch.device("meta"))
    assert refused is not None
    assert refused.kind == "device"


def test_the_rows_own_reason_is_the_detail() -> None:
    refused = told(aten.grid_sampler_2d.default, randn(1, 1, 4, 4), randn(1, 2, 2, 2), 2, 0, True)
    assert refused == Refusal(DeadEnd.COVERAGE, "interpolation_mode=2 with padding_mode=0", "row refuses")


@pytest.mark.parametrize(
    ("op", "args", "kind"),
    [
        (aten._linalg_svd.default, (randn(3, 3),), "no row"),
        (aten.nonzero.default, (randn(3),), "dynamic output shape"),
        (aten.bernoulli.p, (randn(3), 0.5), "random"),
        (aten.add.Tensor, (randn(3).to(torch.complex64), 1), "dtype"),
    ],
)
def test_what_has_no_row_says_why(op: Any, args: tuple[Any, ...], kind: str) -> None:
    refused = told(op, *args)
    assert refused is not None
    assert (refused.dead_end, refused.kind) == (DeadEnd.COVERAGE, kind)


def test_a_custom_op_is_named() -> None:
    @torch.library.custom_op("bridge_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    refused = told(torch.ops.bridge_tests.twice.default, randn(3))
    assert refused == Refusal(
        DeadEnd.COVERAGE, "bridge_tests.twice.default is a custom op of bridge_tests", "custom op"
    )


def test_a_row_that_is_not_said_to_be_symbolic_meets_no_symbols() -> None:
    assert told(aten.unbind.int, randn(3, 4)) is None
    refused = told(aten.unbind.int, randn(3, 4), 0, symbolic=True)
    assert refused is not None
    assert refused.dead_end is DeadEnd.DYNAMIC_SHAPE
    assert "symbolic sizes (s" in refused.detail


def test_a_second_row_fails_where_it_is_written() -> None:
    with pytest.raises(ValueError, match=r"aten.add.Tensor is already converted by ops.pointwise.add"):
        converts(aten.add.Tensor)(pointwise.add)


def test_a_row_cannot_name_what_the_schema_has_not() -> None:
    def row(x: Any, colour: Any) -> Any:
        return x

    with pytest.raises(TypeError, match="names colour, which aten.cosh.default does not have"):
        Conversion(aten.cosh.default, row, None, (), None, None, False, "ops.test.row")


def test_rows_come_back_unchanged_and_can_be_called_by_others() -> None:
    assert table()[aten.mul.Tensor].fn is pointwise.mul


def test_absent_overloads_are_kept_by_name() -> None:
    known = list(missing)  # what this torch lacks
    assert present("aten.add.Tensor", "aten.no_such_op.default") == [aten.add.Tensor]
    assert missing == [*known, "aten.no_such_op.default"]
    missing.pop()


def test_only_what_stands_for_a_tensor_is_promoted() -> None:
    assert promoted(aten.add.Tensor) == ("self", "other")
    assert promoted(aten.clamp.default) == ("self", "min", "max")


def test_the_table_cannot_be_written_from_outside() -> None:
    with pytest.raises(TypeError):
        tables.TABLE[aten.cosh.default] = None  # type: ignore[index]
