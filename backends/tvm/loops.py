"""The loop form of a program: values, and the computations, kernels and calls that make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bridge.backends.tvm.index import Axis, Index, compact_strides, product
from bridge.backends.tvm.scalar import Load, Scalar, indices_of, symbols_in, walk


@dataclass(eq=False)
class Value:
    """A tensor of the program, in memory or not.

    strides: how it lies in memory where it does, in elements. told: whether that was said, and is not only assumed: a
    view that has gaps, or shows an element twice, lies otherwise.
    """

    name: str
    shape: tuple[Index, ...]
    dtype: str
    strides: tuple[Index, ...] = field(default=())
    told: bool = field(init=False)

    def __post_init__(self) -> None:
        self.told = bool(self.strides)
        if not self.strides:
            self.strides = compact_strides(self.shape)

    @property
    def numel(self) -> Index:
        return product(self.shape)

    @property
    def compact(self) -> bool:
        """Whether it lies in row-major order without gaps; the stride of a size of one does not matter."""
        strides = compact_strides(self.shape)
        return all(s == c or size == 1 for s, c, size in zip(self.strides, strides, self.shape, strict=True))

    @property
    def reach(self) -> Index:
        """How many elements lie between the first and the last, both counted."""
        total = Index.of(1)
        for size, stride in zip(self.shape, self.strides, strict=True):
            total = total + (size - 1) * stride
        return total

    def offset(self, index: tuple[Index, ...]) -> Index:
        """Where an element lies, counted in elements from the first."""
        total = Index({})
        for i, stride in zip(index, self.strides, strict=True):
            total = total + i * stride
        return total

    def __repr__(self) -> str:
        return f"{self.name}{list(self.shape)}"


@dataclass(eq=False)
class Computation:
    """out[axes] = body, or out[axes] = combine over reduced of body.

    axes: one for each dim of `out`. combine: "" for none, or "sum", "prod", "max", "min", "any", "all".
    nodes: the nodes of the graph that it stands for.
    """

    out: Value
    axes: tuple[Axis, ...]
    body: Scalar
    reduced: tuple[Axis, ...] = ()
    combine: str = ""
    nodes: tuple[str, ...] = ()

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The symbolic sizes by which it is computed."""
        sizes = [*self.out.shape, *self.out.strides, *(axis.extent for axis in (*self.axes, *self.reduced))]
        return frozenset(symbols_in([*sizes, *indices_of(self.body)]))


@dataclass(eq=False)
class Opaque:
    """A PrimFunc that is run as it is: several results at once, or loops written by hand. Wants compact arguments.

    arguments: for each buffer that it reads a value, or a computation of what it then computes in place of reading it.
    """

    name: str
    function: Any
    arguments: tuple[Value | Computation, ...]
    outputs: tuple[Value, ...]
    sizes: tuple[Index, ...] = ()
    nodes: tuple[str, ...] = ()

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it reads from memory."""
        found: list[Any] = []
        for argument in self.arguments:
            if isinstance(argument, Value):
                found.append(argument)
            else:
                found += [node.value for node in walk(argument.body) if isinstance(node, Load)]
        return tuple(dict.fromkeys(found))


@dataclass(eq=False)
class Call:
    """A call-out, by the name of the binding that stands for it."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


Step = Computation | Opaque | Call


@dataclass
class Loops:
    """A whole program in loop form, in an order in which it can run.

    views: for a value that is a torch view of another one, that other one.
    constants: values that are known, as arrays.
    into: for a value the input in whose memory it is to lie, if that can be.
    """

    inputs: tuple[Value, ...]
    steps: list[Step]
    outputs: tuple[Value, ...]
    views: dict[Value, Value]
    constants: dict[Value, Any]
    into: dict[Value, Value] = field(default_factory=dict)
