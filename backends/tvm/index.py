"""Index arithmetic: integer polynomials over loop axes and symbolic sizes, kept in a normal form.

A loop nest is only as good as its indices are simple. Two indices are equal when their normal forms are, a floor
division disappears when the bounds of the axes allow it, and the coefficient of an axis can be read off. Everything
here is plain Python, so that it is quick and can be tested without TVM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Axis:
    """A loop variable that runs from 0 to `extent` - 1."""

    name: str
    extent: Index


@dataclass(frozen=True)
class Size:
    """A size known only by name; at least 0."""

    name: str


@dataclass(frozen=True)
class Quotient:
    """floor(value / by), where that could not be simplified."""

    value: Index
    by: Index


@dataclass(frozen=True)
class Remainder:
    """value - by * floor(value / by), where that could not be simplified."""

    value: Index
    by: Index


@dataclass(frozen=True)
class Data:
    """An integer that is read from memory or computed from what was read; `scalar` has a structural hash."""

    scalar: Any


Atom = Axis | Size | Quotient | Remainder | Data
Monomial = tuple[Atom, ...]


class Index:
    """An immutable polynomial with integer coefficients: a map from products of atoms to coefficients, none zero."""

    __slots__ = ("_axes", "_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: Mapping[Monomial, int] = terms
        self._hash: int | None = None
        self._axes: frozenset[Axis] | None = None

    @staticmethod
    def of(value: int | Atom | Index) -> Index:
        """An index from a number, an atom, or an index itself."""
        if isinstance(value, Index):
            return value
        if isinstance(value, int):
            return Index({(): value} if value else {})
        return Index({(value,): 1})

    @property
    def constant(self) -> int | None:
        """The number that this is, or None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Index) and (self is other or self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __add__(self, other: int | Index) -> Index:
        total = dict(self.terms)
        for monomial, factor in Index.of(other).terms.items():
            total[monomial] = total.get(monomial, 0) + factor
        return _merged({m: f for m, f in total.items() if f})

    __radd__ = __add__

    def __neg__(self) -> Index:
        return Index({m: -f for m, f in self.terms.items()})

    def __sub__(self, other: int | Index) -> Index:
        return self + (-Index.of(other))

    def __rsub__(self, other: int | Index) -> Index:
        return Index.of(other) - self

    def __mul__(self, other: int | Index) -> Index:
        product: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in Index.of(other).terms.items():
                monomial = tuple(sorted((*left, *right), key=_order)) if left and right else (*left, *right)
                product[monomial] = product.get(monomial, 0) + a * b
        return _merged({m: f for m, f in product.items() if f})

    __rmul__ = __mul__

    def __floordiv__(self, by: int | Index) -> Index:
        return _divided(self, Index.of(by))[0]

    def __rfloordiv__(self, value: int) -> Index:
        return Index.of(value) // self

    def __mod__(self, by: int | Index) -> Index:
        return _divided(self, Index.of(by))[1]

    def __rmod__(self, value: int) -> Index:
        return Index.of(value) % self

    def __repr__(self) -> str:
        return " + ".join(_show(m, f) for m, f in self.terms.items()) or "0"

    def atoms(self) -> Iterable[Atom]:
        """Every atom, those inside quotients and remainders too."""
        for monomial in self.terms:
            for atom in monomial:
                yield atom
                if isinstance(atom, Quotient | Remainder):
                    yield from atom.value.atoms()
                    yield from atom.by.atoms()

    @property
    def axes(self) -> frozenset[Axis]:
        """The axes that occur anywhere in it, inside data too."""
        if self._axes is None:
            self._axes = frozenset().union(*(_axes_of(atom) for monomial in self.terms for atom in monomial))
        return self._axes

    def uses(self, axis: Axis) -> bool:
        """Whether the axis occurs anywhere in it, inside data too."""
        return axis in self.axes

    def coefficient(self, axis: Axis) -> Index | None:
        """What the axis is multiplied by, or None where the index is not linear in it."""
        found: dict[Monomial, int] = {}
        for monomial, factor in self.terms.items():
            if axis in monomial:
                rest = list(monomial)
                rest.remove(axis)
                if any(_uses(a, axis) for a in rest):
                    return None
                found[tuple(rest)] = factor
            elif any(_uses(a, axis) for a in monomial):
                return None
        return Index(found)

    def substituted(self, into: Mapping[Axis, Index], data: Callable[[Any], Any] | None = None) -> Index:
        """The index with axes replaced by indices; `data` maps what Data atoms hold."""
        total = Index({})
        for monomial, factor in self.terms.items():
            product = Index.of(factor)
            for atom in monomial:
                product = product * _substituted(atom, into, data)
            total = total + product
        return total


def _axes_of(atom: Atom) -> frozenset[Axis]:
    if isinstance(atom, Axis):
        return frozenset((atom,))
    if isinstance(atom, Quotient | Remainder):
        return atom.value.axes | atom.by.axes
    return atom.scalar.axes if isinstance(atom, Data) else frozenset()


def ravel(index: Sequence[Index], shape: Sequence[Index]) -> Index:
    """The row-major position of `index` in `shape`."""
    flat = Index({})
    for i, size in zip(index, shape, strict=True):
        flat = flat * size + i
    return flat


def unravel(flat: Index, shape: Sequence[Index]) -> tuple[Index, ...]:
    """The inverse of `ravel`, for a position that lies inside."""
    digits: list[Index] = []
    for size in reversed(shape[1:]):
        digits.append(flat % size)
        flat = flat // size
    if shape:
        digits.append(Index({}) if shape[0] == 1 else flat)
    return tuple(reversed(digits))


def product(sizes: Iterable[Index]) -> Index:
    """The number of elements of a shape."""
    total = Index.of(1)
    for size in sizes:
        total = total * size
    return total


def compact_strides(shape: Sequence[Index]) -> tuple[Index, ...]:
    """Row-major strides, as torch gives them: a size of 0 counts as 1."""
    strides: list[Index] = []
    step = Index.of(1)
    for size in reversed(shape):
        strides.append(step)
        step = step * (size if size != 0 else 1)
    return tuple(reversed(strides))


def points(index: Index) -> bool:
    """Whether data is in an index, which may point anywhere."""
    return any(isinstance(atom, Data) for atom in index.atoms())


def below(value: Index, limit: Index) -> bool:
    """Whether 0 <= value < limit can be proven from the bounds of the axes."""
    return _negative(value - limit) and _negative(-value - 1)


def is_size(atom: Atom) -> bool:
    """Whether an atom is the same in all steps of a nest and at least 0: a size, and what sizes are divided into."""
    if isinstance(atom, Quotient | Remainder):
        parts = (a for index in (atom.value, atom.by) for monomial in index.terms for a in monomial)
        return all(is_size(a) for a in parts) and (isinstance(atom, Remainder) or _negative(-atom.value - 1))
    return isinstance(atom, Size)


def _negative(value: Index) -> bool:
    """Whether the largest value that the index can take is below zero."""
    for _ in range(8):
        replaced = False
        total = Index({})
        for monomial, factor in value.terms.items():
            axis = next((a for a in monomial if not is_size(a)), None)
            if axis is None:
                total = total + Index({monomial: factor})
                continue
            replaced = True
            limit = _largest(axis)
            if limit is None:
                return False
            if factor > 0:
                rest = list(monomial)
                rest.remove(axis)
                total = total + Index({tuple(rest): factor}) * limit
        value = total
        if not replaced:
            break
    constant = value.terms.get((), 0)
    return constant < 0 and all(f < 0 for m, f in value.terms.items() if m)


def _largest(atom: Atom) -> Index | None:
    """An upper bound of an atom that is never negative; None for what has no known bounds."""
    if isinstance(atom, Axis):
        return atom.extent - 1
    if isinstance(atom, Remainder):
        return atom.by - 1
    if isinstance(atom, Quotient) and _negative(-atom.value - 1):
        top = Index({})
        for monomial, factor in atom.value.terms.items():
            bounds = [_largest(a) if not is_size(a) else Index.of(a) for a in monomial]
            if factor > 0 and all(b is not None for b in bounds):
                top = top + factor * product(b for b in bounds if b is not None)
            elif factor > 0:
                return None
        return top // atom.by
    return None


def _divided(value: Index, by: Index) -> tuple[Index, Index]:
    """Quotient and remainder by a positive number, rounding down."""
    if by == 1:
        return value, Index({})
    if value.constant is not None and by.constant:
        return Index.of(value.constant // by.constant), Index.of(value.constant % by.constant)
    whole, rest = _split(value, by)
    if not rest.terms or below(rest, by):
        return whole, rest
    if by.constant is not None:
        common = math.gcd(by.constant, *(f for m, f in rest.terms.items() if m))
        if common > 1:
            offset = rest.terms.get((), 0)
            scaled = Index({m: f // common for m, f in rest.terms.items() if m}) + offset // common
            quotient, remainder = _divided(scaled, Index.of(by.constant // common))
            return whole + quotient, remainder * common + offset % common
    inner = _nested(rest, by)
    if inner is not None:
        return whole + inner[0], inner[1]
    return whole + Index.of(Quotient(rest, by)), Index.of(Remainder(rest, by))


def _nested(value: Index, by: Index) -> tuple[Index, Index] | None:
    """Division of what is itself a quotient or a remainder: (x // a) // b, (x % (a * b)) // b, (x % (a * b)) % b."""
    if len(value.terms) != 1:
        return None
    (monomial, factor), *_ = value.terms.items()
    if factor != 1 or len(monomial) != 1:
        return None
    atom = monomial[0]
    if isinstance(atom, Quotient):
        return atom.value // (atom.by * by), Index.of(Remainder(value, by))
    if isinstance(atom, Remainder) and not _split(atom.by, by)[1].terms:
        return (atom.value // by) % _split(atom.by, by)[0], atom.value % by
    return None


def _split(value: Index, by: Index) -> tuple[Index, Index]:
    """value = whole * by + rest, moving every term that `by` divides into `whole`."""
    if len(by.terms) != 1:
        return (Index.of(1), Index({})) if value == by else (Index({}), value)
    (unit, step), *_ = by.terms.items()
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, factor in value.terms.items():
        quotient = _without(monomial, unit)
        if quotient is None:
            rest[monomial] = factor
        elif monomial == () or factor % step == 0:
            whole[quotient] = whole.get(quotient, 0) + factor // step
            if factor % step:
                rest[monomial] = factor % step
        else:
            rest[monomial] = factor
    return Index({m: f for m, f in whole.items() if f}), Index(rest)


def _without(monomial: Monomial, unit: Monomial) -> Monomial | None:
    """The monomial divided by another, or None."""
    left = list(monomial)
    for atom in unit:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _merged(terms: dict[Monomial, int]) -> Index:
    """Put c * (x % k) + c * k * (x // k) back together as c * x."""
    for monomial, factor in terms.items():
        for atom in monomial:
            if not isinstance(atom, Remainder):
                continue
            rest = _without(monomial, (atom,)) or ()
            partner = Index({rest: factor}) * atom.by * Index.of(Quotient(atom.value, atom.by))
            if partner.terms and all(terms.get(m) == f for m, f in partner.terms.items()):
                kept = {m: f for m, f in terms.items() if m != monomial and m not in partner.terms}
                return Index(kept) + Index({rest: factor}) * atom.value
    return Index(terms)


def _substituted(atom: Atom, into: Mapping[Axis, Index], data: Callable[[Any], Any] | None) -> Index:
    if isinstance(atom, Axis):
        return into.get(atom, Index.of(atom))
    if isinstance(atom, Quotient):
        return atom.value.substituted(into, data) // atom.by.substituted(into, data)
    if isinstance(atom, Remainder):
        return atom.value.substituted(into, data) % atom.by.substituted(into, data)
    if isinstance(atom, Data) and data is not None:
        return Index.of(Data(data(atom.scalar)))
    return Index.of(atom)


def _uses(atom: Atom, axis: Axis) -> bool:
    return Index.of(atom).uses(axis)


def _order(atom: Atom) -> tuple[str, int]:
    return type(atom).__name__, id(atom) if isinstance(atom, Axis) else hash(atom)


def _show(monomial: Monomial, factor: int) -> str:
    names = [a.name if isinstance(a, Axis | Size) else repr(a) for a in monomial]
    return "*".join([*([] if factor == 1 and names else [str(factor)]), *names])
