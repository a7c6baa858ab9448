"""An index out of bounds raises, as in eager, before anything is done by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.backends.tvm.bounds import DIVIDING, INDEXED

Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

CALLS: dict[str, Call] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, torch.zeros(4)),
    "index": lambda x, i: x[i],
    "index of the second dimension": lambda x, i: x[:, i],
    "index_put": lambda x, i: x.index_put((i,), torch.tensor(2.0)),
    "nll_loss": lambda x, i: F.nll_loss(x[:4], i),
    "nll_loss2d": lambda x, i: F.nll_loss(x[None, :, :4], i[None]),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(1, i),
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(4, 6)),
    "index_copy": lambda x, i: x.index_copy(0, i, torch.ones(4, 6)),
    "index_reduce": lambda x, i: x.index_reduce(0, i, torch.ones(4, 6), "amax"),
    "scatter": lambda x, i: x.scatter(1, i[:, None], torch.ones(4, 1)),
    "scatter of a value": lambda x, i: x.scatter(-1, i[:, None], 2.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i[:, None], torch.ones(4, 1)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i[:, None], torch.ones(4, 1), "amax"),
}

NEGATIVE = ("index_add", "index_copy")
"""What torch decomposes into a call that counts negative indices from the end, which eager refuses here."""


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_index_raises_and_no_other(name: str) -> None:
    call = CALLS[name]
    compiled = bridge.compile(call)
    x = torch.randn(6, 6, requires_grad=True)
    for last in (0, 5, -1, -6, -7, 6, 35, -36, 36, -37, -100, 1 << 40):
        if last < 0 and name in NEGATIVE:
            continue
        index = torch.tensor([1, 2, 0, last])
        try:
            wanted = call(x, index)
        except (IndexError, RuntimeError):
            with pytest.raises(IndexError, match="index out of range: aten"):
                compiled(x, index)
        else:
            torch.testing.assert_close(compiled(x, index), wanted)
    (graph, *_) = bridge.inspect(compiled).graphs
    assert not list(bridge.inspect(compiled).ledger)
    assert "check_" in graph.source


def test_every_way_to_index_is_tried() -> None:
    text = "".join(CALLS)
    assert all(op._schema.name.split("::")[1].removesuffix("_forward") in text for op in INDEXED)


def test_the_message_names_op_and_line_and_what_is_allowed() -> None:
    compiled = bridge.compile(CALLS["index"], dynamic=True)
    with pytest.raises(
        IndexError, match=r"aten\.index\.Tensor takes \[-s\d+, s\d+\), at test_bounds\.py:\d+ in <lambda>"
    ):
        compiled(torch.randn(6, 6), torch.tensor([0, 0, 6]))


def test_what_the_graph_computes_is_not_looked_at_and_an_input_once() -> None:
    compiled = bridge.compile(lambda x, i: x[x.argmax(0)] + x[i] * x[i.view(-1)])
    x, i = torch.randn(6, 6), torch.tensor([1, 2, 3, 4, 5, 0])
    torch.testing.assert_close(compiled(x, i), x[x.argmax(0)] + x[i] * x[i])
    (graph,) = bridge.inspect(compiled).graphs
    assert graph.source.count("check_") == 2


def test_a_step_with_a_wrong_label_changes_nothing() -> None:
    model = nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    step = bridge.compile_step(model, optimizer, F.cross_entropy)
    x, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 3])
    for _ in range(3):
        step(x, labels)
    held = [*model.parameters(), *(v for s in optimizer.state.values() for v in s.values())]
    before = [tensor.clone() for tensor in held]
    with pytest.raises(IndexError, match="nll_loss"):
        step(x, labels + 1)
    assert all(torch.equal(one, other) for one, other in zip(before, held, strict=True))
    assert step(x, labels).isfinite()


def test_an_index_without_elements_may_have_any_rank() -> None:
    x = torch.randn(5, requires_grad=True)
    index = torch.zeros(2, 0, dtype=torch.long)
    compiled = bridge.compile(
        lambda x: torch.gather(x, 0, index).sum() + x.scatter_add(0, index, x.new_ones(2, 0)).sum()
    )
    compiled(x).backward()
    torch.testing.assert_close(x.grad, torch.ones(5))
    assert not compiled.ledger.select(dead_end="coverage")


DIVISIONS: dict[str, Call] = {
    "remainder.Tensor": lambda a, b: a % b,
    "remainder.Scalar_Tensor": lambda a, b: torch.remainder(7, b),
    "floor_divide": lambda a, b: torch.ops.aten.floor_divide(a, b),
    "div.Tensor_mode": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod.Tensor": lambda a, b: torch.fmod(a, b),
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_integers_are_divided_by_tensors_and_a_zero_raises(name: str, dtype: torch.dtype) -> None:
    compiled = bridge.compile(DIVISIONS[name])
    divided = torch.tensor([7, 255, 0, 100, 3], dtype=dtype)
    divisor = torch.tensor([2, 7, 5, 1, 3], dtype=dtype)
    if dtype.is_signed:
        divided, divisor = divided * torch.tensor([1, -1, 1, 1, -1]), divisor * torch.tensor([1, 1, -1, -1, -1])
        divided[3] = torch.iinfo(dtype).min + (name == "div.Tensor_mode")  # eager itself ends the process at the least
        divided, divisor = divided.to(dtype), divisor.to(dtype)
    result, expected = compiled(divided, divisor), DIVISIONS[name](divided, divisor)
    assert torch.equal(result, expected)
    assert result.dtype == expected.dtype
    divisor[2] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError: aten"):
        compiled(divided, divisor)
    assert not list(bridge.inspect(compiled).ledger)


BY_NUMBERS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "remainder.Scalar": lambda a, n: a % n,
    "floor_divide.Scalar": lambda a, n: torch.ops.aten.floor_divide.Scalar(a, n),
    "div.Scalar_mode": lambda a, n: torch.ops.aten.div.Scalar_mode(a, n, rounding_mode="floor"),
    "fmod.Scalar": lambda a, n: torch.fmod(a, n),
}


@pytest.mark.parametrize("name", BY_NUMBERS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_a_number_by_which_is_divided_is_looked_at(name: str, dtype: torch.dtype) -> None:
    """A number that is read, a size, and a tensor without dimensions; 256 is no int8 but 0."""
    divided = torch.tensor([7, -7, 100], dtype=dtype)
    read = bridge.compile(lambda a, n: BY_NUMBERS[name](a, n.item()), dynamic=True)
    size = bridge.compile(lambda a, n: BY_NUMBERS[name](a, n.shape[0] - 2), dynamic=True)
    for number in (3, -1, 256 if dtype == torch.int64 else 5):
        expected = BY_NUMBERS[name](divided, number)
        assert torch.equal(read(divided, torch.tensor(number)), expected)
        assert number < 0 or torch.equal(size(divided, torch.zeros(number + 2)), expected)
    for number in (0, *((256,) if dtype == torch.int8 else ())):
        for compiled, given in ((read, torch.tensor(number)), (size, torch.zeros(number + 2))):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                compiled(divided, given)
    assert not read.ledger.select(dead_end="coverage")


def test_a_divisor_that_becomes_zero_in_the_type_of_what_it_divides_raises() -> None:
    compiled = bridge.compile(lambda a, b: a // b)
    assert compiled(torch.tensor([7], dtype=torch.int8), torch.tensor(3)).item() == 2
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([7], dtype=torch.int8), torch.tensor(256))


def test_a_mask_that_holds_more_often_than_there_are_values_raises() -> None:
    compiled = bridge.compile(lambda x, mask, values: x.masked_scatter(mask, values).exp())
    x, values = torch.randn(3, 4), torch.randn(5)
    few = torch.tensor([True, False, False])[:, None]
    torch.testing.assert_close(compiled(x, few, values)[0], values[:4].exp())
    with pytest.raises(RuntimeError, match="aten.masked_scatter.default has 5 values for a mask that holds more often"):
        compiled(x, torch.tensor([True, False, True])[:, None], values)


def test_every_way_to_divide_is_tried() -> None:
    tried = {str(op).removeprefix("aten.").removesuffix(".default") for op in DIVIDING}
    assert tried == {*DIVISIONS, *BY_NUMBERS}


@pytest.mark.parametrize("divided", [torch.floor_divide, torch.remainder, torch.fmod])
def test_integers_are_divided_by_a_number_that_is_read_and_a_zero_raises(divided: Callable[..., torch.Tensor]) -> None:
    compiled = bridge.compile(lambda x: divided(x, x[0].item()) + 1)
    x = torch.tensor([2, 5, 6])
    assert torch.equal(compiled(x), divided(x, 2) + 1)
    x[0] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x)


def test_a_size_is_no_zero_and_divides() -> None:
    compiled = bridge.compile(lambda x, y: x // y.shape[0], dynamic=True)
    x = torch.tensor([2, 5, 6])
    assert torch.equal(compiled(x, torch.zeros(3)), x // 3)
    assert not list(compiled.ledger)


def test_a_constant_zero_is_left_to_eager_which_raises() -> None:
    """256 is one for integers of 8 bits."""
    for zero, dtype in ((0, torch.int64), (0, torch.bool), (256, torch.int8)):
        compiled = bridge.compile(lambda x, zero=zero: x % zero + x)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            compiled(torch.tensor([1, 0, 1], dtype=dtype))
        assert not compiled.ledger.select(dead_end="maintenance")
