"""Index arithmetic says what Python's integers say, and simplifies what fusion depends on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.backends.tvm.index import Axis, Index, Size, below, compact_strides, ravel, unravel

ROW, COLUMN = Axis("i", Index.of(6)), Axis("j", Index.of(8))
N = Index.of(Size("n"))


def value(index: Index, at: dict[Axis, int]) -> int:
    """The index at given axes."""
    constant = index.substituted({axis: Index.of(v) for axis, v in at.items()}).constant
    assert constant is not None
    return constant


expressions = st.recursive(
    st.one_of(st.integers(-9, 9).map(Index.of), st.sampled_from([Index.of(ROW), Index.of(COLUMN)])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, st.integers(-4, 4)).map(lambda p: p[0] * p[1]),
    ),
    max_leaves=6,
)


@given(expressions, st.integers(1, 12), st.integers(0, 5), st.integers(0, 7))
def test_division_rounds_down(expr: Index, by: int, i: int, j: int) -> None:
    at = {ROW: i, COLUMN: j}
    assert value(expr // by, at) == value(expr, at) // by
    assert value(expr % by, at) == value(expr, at) % by
    assert value((expr // by) * by + expr % by, at) == value(expr, at)


@given(expressions, st.integers(2, 5), st.integers(2, 5), st.integers(0, 5), st.integers(0, 7))
def test_nested_division(expr: Index, a: int, b: int, i: int, j: int) -> None:
    at = {ROW: i, COLUMN: j}
    assert value(expr // a // b, at) == value(expr, at) // a // b
    assert value(expr % (a * b) // b, at) == value(expr, at) % (a * b) // b
    assert value(expr % (a * b) % b, at) == value(expr, at) % (a * b) % b


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4), st.data())
def test_unravel_inverts_ravel(sizes: list[int], data: st.DataObject) -> None:
    shape = [Index.of(n) for n in sizes]
    axes = [Axis(f"a{n}", size) for n, size in enumerate(shape)]
    flat = ravel([Index.of(a) if a.extent != 1 else Index({}) for a in axes], shape)
    at = {axis: data.draw(st.integers(0, n - 1)) for axis, n in zip(axes, sizes, strict=True)}
    assert [value(i, at) for i in unravel(flat, shape)] == list(at.values())
    assert [i for i, n in zip(unravel(flat, shape), sizes, strict=True) if n != 1] == [
        Index.of(a) for a, n in zip(axes, sizes, strict=True) if n != 1
    ]


def test_a_reshape_there_and_back_is_nothing() -> None:
    flat = Index.of(ROW) * 8 + Index.of(COLUMN)
    assert (flat // 8, flat % 8) == (Index.of(ROW), Index.of(COLUMN))
    assert (flat // 4) * 4 + flat % 4 == flat
    assert flat // 2 // 4 == Index.of(ROW)


def test_symbolic_sizes_divide_out() -> None:
    row = Axis("r", N)
    flat = Index.of(row) * 4 + Index.of(Axis("c", Index.of(4)))
    assert below(flat, N * 4)
    assert (flat // 4, (flat + N * 4 * Index.of(ROW)) % (N * 4)) == (Index.of(row), flat)
    assert (N * N * 6) // (N * 2) == N * 3
    assert not below(Index.of(row), Index.of(4))
    assert (repr(32 // N), repr(32 % N)) == (repr(Index.of(32) // N), repr(Index.of(32) % N))


def test_sizes_that_are_quotients_divide_out() -> None:
    """The rows and columns of an image that was halved."""
    side = (Index.of(Size("s")) + 15) // 16
    channel, row, column = Axis("c", Index.of(8)), Axis("i", side), Axis("j", side)
    flat = (Index.of(channel) * side + Index.of(row)) * side + Index.of(column)
    assert unravel(flat, (Index.of(8), side, side)) == (Index.of(channel), Index.of(row), Index.of(column))
    assert flat // (side * side) == Index.of(channel)


def test_a_quotient_that_may_be_negative_is_no_size() -> None:
    less = (Index.of(Size("s")) - 3) // 2
    assert not below(Index.of(5), less + 6)
    assert below(Index.of(5), Index.of(Size("s")) // 2 + 6)


def test_strides_of_an_empty_shape_are_torchs() -> None:
    assert compact_strides([Index.of(2), Index.of(0), Index.of(3)]) == (Index.of(3), Index.of(3), Index.of(1))
    assert compact_strides([]) == ()
