"""What a kernel computes for one element: expressions over loads, in plain Python.

TVM's expressions are read into these once (`read.py`), inlined and shared here, and written out again by `emit.py`.
A node is compared by identity; sharing a node means computing it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bridge.backends.tvm.index import Axis, Data, Index, Size

if TYPE_CHECKING:
    from bridge.backends.tvm.loops import Value


class _Node:
    """Shared behaviour: a structural key, for the few places where two nodes are compared by what they say."""

    dtype: str

    @property
    def operands(self) -> tuple[Scalar, ...]:
        return ()

    @cached_property
    def key(self) -> tuple[Any, ...]:
        return (type(self).__name__, self.dtype, self._own(), *(o.key for o in self.operands))

    def _own(self) -> Any:
        return None

    @cached_property
    def axes(self) -> frozenset[Axis]:
        """The axes on which the value depends."""
        return self._own_axes().union(*(o.axes for o in self.operands))

    def uses(self, axis: Axis) -> bool:
        """Whether the value depends on the axis."""
        return axis in self.axes

    def _own_axes(self) -> frozenset[Axis]:
        return frozenset()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Node) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False)
class Constant(_Node):
    """A number of the given dtype."""

    value: float | int | bool
    dtype: str

    def _own(self) -> Any:
        return repr(self.value)


@dataclass(frozen=True, eq=False)
class Position(_Node):
    """An index used as a value: `arange`, the comparison in a one-hot."""

    index: Index
    dtype: str

    def _own(self) -> Any:
        return self.index

    def _own_axes(self) -> frozenset[Axis]:
        return self.index.axes


@dataclass(frozen=True, eq=False)
class Load(_Node):
    """One element of a value."""

    value: Value
    index: tuple[Index, ...]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.value.dtype

    def _own(self) -> Any:
        return self.value, self.index

    def _own_axes(self) -> frozenset[Axis]:
        return frozenset().union(*(i.axes for i in self.index))


@dataclass(frozen=True, eq=False)
class Reduced(_Node):
    """The result of a reduction of the same kernel, at the row that is being worked on."""

    value: Value

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.value.dtype

    def _own(self) -> Any:
        return self.value


@dataclass(frozen=True, eq=False)
class Operation(_Node):
    """An operator or function of TVM by name ("Add", "tirx.exp"), applied to operands; "Cast" and "Select" are two."""

    name: str
    arguments: tuple[Scalar, ...]
    dtype: str

    @property
    def operands(self) -> tuple[Scalar, ...]:
        return self.arguments

    def _own(self) -> Any:
        return self.name


@dataclass(frozen=True, eq=False)
class Guarded(_Node):
    """`then` where the condition holds, else `otherwise`; the one that is not wanted must not be read."""

    condition: Scalar
    then: Scalar
    otherwise: Scalar
    dtype: str = field(default="")

    @property
    def operands(self) -> tuple[Scalar, ...]:
        return self.condition, self.then, self.otherwise


Scalar = Constant | Position | Load | Reduced | Operation | Guarded


def walk(root: Scalar) -> Iterator[Scalar]:
    """Every node below and including `root` once, operands first, those inside indices too."""
    seen: set[int] = set()
    stack: list[tuple[Scalar, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in (*node.operands, *inside(node)))


def inside(node: Scalar) -> list[Scalar]:
    """The scalars that a node's indices hold."""
    indices = node.index if isinstance(node, Load) else (node.index,) if isinstance(node, Position) else ()
    return [atom.scalar for index in indices for atom in index.atoms() if isinstance(atom, Data)]


def indices_of(root: Scalar) -> list[Index]:
    """The indices below and including `root`, and the sizes and strides of what is read by them."""
    found: list[Index] = []
    for node in walk(root):
        if isinstance(node, Position):
            found.append(node.index)
        elif isinstance(node, Load):
            found += [*node.index, *node.value.shape, *node.value.strides]
    return found


def symbols_in(indices: Iterable[Index]) -> set[str]:
    """The names of the symbolic sizes that indices are made of, inside data too."""
    atoms = [atom for index in indices for atom in index.atoms()]
    names = {atom.name for atom in atoms if isinstance(atom, Size)}
    return names.union(*(symbols_in(indices_of(atom.scalar)) for atom in atoms if isinstance(atom, Data)))


class Rewriter:
    """Rebuilds expressions with axes replaced and loads given to `load`, keeping what is shared shared."""

    def __init__(self, axes: Mapping[Axis, Index], load: Callable[[Load], Scalar] | None = None) -> None:
        self._axes = axes
        self._load = load
        self._done: dict[int, Scalar] = {}
        self._alive: list[Scalar] = []

    def __call__(self, root: Scalar) -> Scalar:
        for node in walk(root):
            if id(node) not in self._done:
                self._done[id(node)] = self._rebuilt(node)
                self._alive.append(node)
        return self._done[id(root)]

    def index(self, index: Index) -> Index:
        """An index with axes replaced, the data inside it too."""
        return index.substituted(self._axes, self.__call__)

    def _rebuilt(self, node: Scalar) -> Scalar:
        if isinstance(node, Load):
            moved = Load(node.value, tuple(self.index(i) for i in node.index))
            return self._load(moved) if self._load else moved
        if isinstance(node, Position):
            return Position(self.index(node.index), node.dtype)
        if isinstance(node, Operation):
            return Operation(node.name, tuple(self._done[id(a)] for a in node.arguments), node.dtype)
        if isinstance(node, Guarded):
            parts = [self._done[id(o)] for o in node.operands]
            return Guarded(parts[0], parts[1], parts[2], node.dtype)
        return node
