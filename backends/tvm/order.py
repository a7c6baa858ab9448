"""When steps run whose results nobody in the program reads: mostly gradients of weights.

Autograd asks for the gradient of a layer's input first, and for that of its weight then. The latter is the last to read
what was saved of the layer, so where that is larger, it runs first. Where the gradient is larger than all that it is
made of, as with few samples, it waits until the end, when what was saved of other layers is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from bridge.backends.tvm.index import Index, Quotient, Remainder, Size
from bridge.backends.tvm.inplace import Item
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Call, Loops, Value
from bridge.backends.tvm.scalar import symbols_in
from bridge.backends.tvm.schedule.vector import width

LIKELY = 512
"""What a symbolic size is taken for."""


def reordered(
    items: Sequence[Item],
    loops: Loops,
    base: Callable[[Value], Value],
    fresh: Collection[str],
    released: Collection[str],
    told_late: Collection[str] = (),
) -> list[Item]:
    """The steps, with those moved of which it is likely that less memory is held meanwhile.

    What is written over dead values is decided afterwards, and may be less.

    fresh: the call-outs that may run at another time. released: the names of the inputs that nobody else holds.
    told_late: the symbolic sizes that a call tells, and no input.
    """
    return _Order(items, loops, base, fresh, released, told_late).changed()


class _Order:
    def __init__(
        self,
        items: Sequence[Item],
        loops: Loops,
        base: Callable[[Value], Value],
        fresh: Collection[str],
        released: Collection[str],
        told_late: Collection[str],
    ) -> None:
        self._items = list(items)
        self._told_late = frozenset(told_late)
        self._made = {id(item): {base(v) for v in _results(item)} for item in items}
        self._read = {id(item): {base(v) for v in (_inputs(item))} for item in items}
        self._fresh = fresh
        self._replaced = {*loops.into, *loops.into.values()}
        self._read_by_steps = {v for item in items for v in self._read[id(item)]}
        kept = {base(v) for v in loops.outputs}
        own = {v for item in items for v in self._made[id(item)]}
        self._freed = {v for v in (*own, *(i for i in loops.inputs if i.name in released)) if v not in kept}

    def changed(self) -> list[Item]:
        late = [item for item in self._items if self._is_last(item) and self._size(item) > self._held(item)]
        self._items = [item for item in self._items if item not in late]
        for item in [item for item in self._items if self._is_last(item) and not self._told_late & _symbols(item)]:
            self._advance(item)
        return [*self._items, *sorted(late, key=self._held, reverse=True)]

    def _is_last(self, item: Item) -> bool:
        """Whether no step reads what the item makes, and it does the same at any time after what it reads is there."""
        if not isinstance(item, Kernel) and not (isinstance(item, Call) and item.name in self._fresh):
            return False
        made, read = self._made[id(item)], self._read[id(item)]
        return not made & self._read_by_steps and not (made | read) & self._replaced

    def _size(self, item: Item) -> int:
        return sum(bytes_of(v) for v in self._made[id(item)])

    def _held(self, item: Item) -> int:
        """The bytes that are held for the item, if it waits."""
        return sum(bytes_of(v) for v in self._read[id(item)] & self._freed)

    def _advance(self, item: Item) -> None:
        """Have the item run before one that takes more memory than it, where it then lets go of more than it makes."""
        here = self._items.index(item)
        first = 1 + max(
            (n for n, i in enumerate(self._items[:here]) if self._made[id(i)] & self._read[id(item)]), default=-1
        )
        later = {v for i in self._items[here + 1 :] for v in self._read[id(i)]}
        place, between = None, set(later)
        for number in range(here - 1, first - 1, -1):
            between |= self._read[id(self._items[number])]
            gone = sum(bytes_of(v) for v in (self._read[id(item)] & self._freed) - between)
            if self._size(item) < gone and self._size(item) <= self._size(self._items[number]):
                place = number
        if place is not None:
            self._items.insert(place, self._items.pop(here))


def bytes_of(value: Value) -> int:
    """How much memory a value takes, or likely takes."""
    return _number(value.numel) * width(value.dtype) if value.dtype != "object" else 0


def _number(index: Index) -> int:
    total = 0
    for monomial, factor in index.terms.items():
        for atom in monomial:
            if isinstance(atom, Quotient | Remainder):
                value, by = _number(atom.value), max(_number(atom.by), 1)
                factor *= value // by if isinstance(atom, Quotient) else value % by
            elif isinstance(atom, Size):
                factor *= LIKELY
        total += factor
    return total


def _symbols(item: Item) -> set[str]:
    """The symbolic sizes that an item has to know."""
    if isinstance(item, Kernel):
        return {symbol for member in item.members for symbol in member.symbols}
    return symbols_in(size for value in (*item.inputs, *item.outputs) for size in (*value.shape, *value.strides))


def _results(item: Item) -> Sequence[Value]:
    return item.stored if isinstance(item, Kernel) else item.outputs


def _inputs(item: Item) -> Collection[Value]:
    return item.reads() if isinstance(item, Kernel) else item.inputs
