"""Kernels that do the same to other values, as those of the steps of a loop over time: told before any is scheduled.

Often they differ in nothing but where in a value they begin to read, as when each step reads its own slice of what was
computed for all steps at once. Then where it begins is a number that the one kernel is called with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.backends.tvm.index import Axis, Data, Index, Quotient, Remainder, Size
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import (
    Constant,
    Load,
    Operation,
    Position,
    Reduced,
    Rewriter,
    Scalar,
    indices_of,
    symbols_in,
    walk,
)
from bridge.backends.tvm.schedule.nest import Nest, Reduction, Store, nest_of
from bridge.backends.tvm.schedule.parameters import Scheduled

START = "start_{}"
"""The name of the size that says where the reading of a value begins; the value's number in the form follows."""


@dataclass(frozen=True)
class Form:
    """What a kernel does, apart from whose values it reads and writes, and where in them it begins to read.

    key: equal for kernels that do the same. values: in the order in which the key counts them. starts: by value the
    element from which on it is read, where the key leaves that out.
    """

    nest: Nest
    key: tuple[Any, ...]
    values: tuple[Value, ...]
    starts: Mapping[Value, int]

    @property
    def places(self) -> tuple[int, ...]:
        """The starts in the order of the values."""
        return tuple(self.starts.get(value, 0) for value in self.values)

    def beginning_anywhere(self, several: Sequence[int]) -> Nest:
        """The nest with a size for where each of the values of these numbers begins to be read."""
        sizes = {self.values[n]: Index.of(Size(START.format(n))) for n in several}
        return _moved(self.nest, {value: size - self.starts[value] for value, size in sizes.items()})


def form_of(kernel: Kernel) -> Form | None:
    """The kernel's form; None where it reads by what data says, or is of symbolic sizes."""
    nest = nest_of(kernel)
    axes = [axis.extent for axis in (*nest.rows, *nest.cols)]
    indices = [*axes, *nest.offsets(), *(index for root in nest.scalars for index in indices_of(root))]
    if symbols_in(indices) or any(isinstance(atom, Data) for index in indices for atom in index.atoms()):
        return None
    starts = _starts(nest, {*kernel.into, *kernel.into.values()})
    telling = _Telling(nest, starts)
    key = telling.key(kernel)
    return Form(nest, key, tuple(telling.values), starts)


class Alike:
    """The kernels of a program by what they do; each kind is scheduled once."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self._forms = {id(kernel): form for kernel in kernels if (form := form_of(kernel)) is not None}
        self._kinds: dict[tuple[Any, ...], list[Form]] = {}
        for form in self._forms.values():
            self._kinds.setdefault(form.key, []).append(form)
        self._made: dict[tuple[Any, ...], tuple[Form, Scheduled]] = {}

    def scheduled(self, kernel: Kernel, schedule: Callable[[Kernel, Nest | None], Scheduled]) -> Scheduled:
        """The kernel, made by `schedule` unless one that does the same was. `sizes` are numbers where they are starts.

        schedule: is given the nest to lay out, None for the kernel's own.
        """
        form = self._forms.get(id(kernel))
        if form is None:
            return schedule(kernel, None)
        if form.key not in self._made:
            several = _differing([other.places for other in self._kinds[form.key]])
            self._made[form.key] = form, schedule(kernel, form.beginning_anywhere(several) if several else None)
        return _called(*self._made[form.key], form)


def _differing(places: Sequence[Sequence[int]]) -> list[int]:
    """Where sequences of one length are not the same."""
    return [n for n, numbers in enumerate(zip(*places, strict=True)) if len(set(numbers)) > 1]


def _called(first: Form, made: Scheduled, form: Form) -> Scheduled:
    """What was scheduled for the first form of a key, as it is called for another one."""
    other = dict(zip(first.values, form.values, strict=True))
    starts = {START.format(n): str(place) for n, place in enumerate(form.places)}
    inputs, outputs = ([other[value] for value in values] for values in (made.inputs, made.outputs))
    return replace(made, inputs=inputs, outputs=outputs, sizes=[starts[size] for size in made.sizes])


def _starts(nest: Nest, fixed: set[Value]) -> dict[Value, int]:
    """By value the first element that is read, as far as that can be told from constants alone."""
    constants: dict[Value, set[int | None]] = {}
    for root in nest.scalars:
        for node in walk(root):
            if isinstance(node, Load) and node.value not in fixed and any(s == 1 for s in node.value.strides):
                offset = node.value.offset(node.index)
                plain = all(isinstance(atom, Axis) for atom in offset.atoms())
                constants.setdefault(node.value, set()).add(offset.terms.get((), 0) if plain else None)
    return {value: min(found) for value, found in constants.items() if None not in found and min(found) >= 0}  # type: ignore


def _moved(nest: Nest, by: Mapping[Value, Index]) -> Nest:
    """The nest with what it reads of some values so many elements further on."""

    def moved(load: Load) -> Load:
        if load.value not in by:
            return load
        offset = load.value.offset(load.index) + by[load.value]
        contiguous = next(n for n, stride in enumerate(load.value.strides) if stride == 1)
        return Load(load.value, tuple(offset if n == contiguous else Index({}) for n in range(len(load.index))))

    rewrite = Rewriter({}, moved)
    reductions = tuple(Reduction(r.value, rewrite(r.body), r.combine, r.level) for r in nest.reductions)
    stores = tuple(Store(s.value, rewrite(s.body), s.offset, s.level, s.over_columns) for s in nest.stores)
    return Nest(nest.rows, nest.cols, reductions, stores)


class _Telling:
    """Says what a nest does in numbers for its values and axes."""

    def __init__(self, nest: Nest, starts: Mapping[Value, int]) -> None:
        self._nest, self._starts = nest, starts
        self._axes = {axis: n for n, axis in enumerate((*nest.rows, *nest.cols))}
        self._places: dict[int, int] = {}
        self._said: list[Any] = []
        self.values: dict[Value, int] = {}

    def key(self, kernel: Kernel) -> tuple[Any, ...]:
        nest = self._nest
        extents = tuple(self._index(axis.extent) for axis in self._axes)
        reductions = [(self._scalar(r.body), self._value(r.value), r.combine, r.level) for r in nest.reductions]
        stores = [
            (self._scalar(s.body), self._value(s.value), self._index(s.offset), s.level, s.over_columns)
            for s in nest.stores
        ]
        stored = tuple(self._value(value) for value in kernel.stored)
        into = tuple(sorted((self._value(value), self._value(target)) for value, target in kernel.into.items()))
        rest = tuple(self._said), stored, into, self._memory()
        return len(nest.rows), extents, tuple(reductions), tuple(stores), *rest

    def _memory(self) -> tuple[Any, ...]:
        """How the values lie."""
        sizes = lambda value: tuple(self._index(size) for size in (*value.shape, *value.strides))  # noqa: E731
        return tuple((value.dtype, sizes(value)) for value in self.values)

    def _value(self, value: Value) -> int:
        return self.values.setdefault(value, len(self.values))

    def _scalar(self, root: Scalar) -> int:
        """The place of a scalar in what is said: what it does, and the places of its operands."""
        for node in walk(root):
            if id(node) not in self._places:
                self._places[id(node)] = len(self._said)
                operands = tuple(self._places[id(operand)] for operand in node.operands)
                self._said.append((type(node).__name__, node.dtype, self._own(node), operands))
        return self._places[id(root)]

    def _own(self, node: Scalar) -> Any:
        if isinstance(node, Load):
            start = self._starts.get(node.value)
            offset = node.value.offset(node.index)
            place = self._index(offset - start) if start is not None else tuple(self._index(i) for i in node.index)
            return self._value(node.value), start is not None, place
        if isinstance(node, Reduced):
            return self._value(node.value)
        if isinstance(node, Position):
            return self._index(node.index)
        return repr(node.value) if isinstance(node, Constant) else node.name if isinstance(node, Operation) else None

    def _index(self, index: Index) -> tuple[Any, ...]:
        return tuple(sorted(((tuple(sorted(map(self._atom, m))), f) for m, f in index.terms.items()), key=repr))

    def _atom(self, atom: Any) -> str:
        if isinstance(atom, Quotient | Remainder):
            return repr((type(atom).__name__, self._index(atom.value), self._index(atom.by)))
        return f"axis {self._axes[atom]}"
