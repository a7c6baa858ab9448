"""The parameters of a kernel: the buffers that it reads and writes, as torch hands them over, and symbolic sizes."""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from bridge.backends.tvm.index import Index, compact_strides
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import Load, indices_of, symbols_in, walk
from bridge.backends.tvm.schedule.emit import Code, Emitter
from bridge.backends.tvm.schedule.nest import Nest
from bridge.backends.tvm.schedule.vector import Lanes, width


@dataclass(frozen=True)
class Scheduled:
    """A kernel as a PrimFunc, and what it is called with: the values it reads and writes, and symbolic sizes by name.

    wide: those of the values that it reads in patches, which have to begin on 16 bytes.
    by_address: whether it is called with the addresses of values in place of tensors.
    """

    function: Any
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    sizes: Sequence[str]
    wide: Sequence[Value] = ()
    by_address: bool = False


class Parameters:
    """Of one kernel. flat: by value, the buffer in one dimension by which it is read and written."""

    def __init__(
        self, nest: Nest, stored: Sequence[Value], code: Code, held: Mapping[str, str], into: Mapping[Value, Value]
    ) -> None:
        """held: the type in which a value of a type lies in memory, where kernels call it otherwise.

        into: the inputs over which results are written; each is the parameter of that result.
        """
        self.outputs = list(stored)
        self.inputs = [value for value in inputs_of(nest) if value not in into.values()]
        values = [*self.inputs, *self.outputs]
        self.sizes = {
            size: tirx.Var(size if size.isidentifier() else f"z{number}", "int64")
            for number, size in enumerate(sizes_of(nest, values))
        }
        self.flat: dict[Value, Any] = {}
        self._code, self._held = code, held
        buffers = [self._buffer(v, n) for n, v in enumerate(values)]
        self.flat.update((target, self.flat[value]) for value, target in into.items())
        self.variables = [*buffers, *self.sizes.values()]

    def scheduled(self, name: str, wide: Sequence[Value] = ()) -> Scheduled:
        """The kernel of these parameters and of the code."""
        function = tirx.PrimFunc(self.variables, self._code.finish())
        function = function.with_attr("global_symbol", name).with_attr("tirx.noalias", True).with_attr("s_tir", True)
        return Scheduled(function, self.inputs, self.outputs, list(self.sizes), wide)

    def _buffer(self, value: Value, number: int) -> Any:
        """A buffer as torch hands it over, and a flat view of it."""
        dtype = self._held.get(value.dtype, value.dtype)
        buffer, self.flat[value], statement = as_handed_over(value, number, Extents(self.sizes), dtype)
        self._code.add(statement)
        return buffer


def as_handed_over(value: Value, number: int, extents: Extents, dtype: str) -> tuple[Any, Any, Any]:
    """A value's buffer as torch hands it over, one of its memory in one dimension, and what declares that one."""
    strides = None
    if not value.compact:
        strides = [
            tirx.Var(f"s{number}_{n}", "int64") if size == 1 else extents(stride)
            for n, (stride, size) in enumerate(zip(value.strides, value.shape, strict=True))
        ]
    shape = [extents(s) for s in value.shape]
    buffer = tirx.decl_buffer(shape, dtype, f"p{number}", strides=strides, data_alignment=width(dtype))
    flat = tirx.decl_buffer((extents(value.reach),), dtype, f"f{number}", data_alignment=width(dtype))
    return buffer, flat, tirx.DeclBuffer(flat, data=buffer.data)


class Extents:
    """Sizes as expressions over the kernel's symbolic sizes."""

    def __init__(self, sizes: Mapping[str, Any], integer: str = "int64") -> None:
        self._emit = Emitter(Code(), {}, sizes, (), Lanes(None, 1))
        self._emit.integer = integer

    def __call__(self, index: Index) -> Any:
        return self._emit.index(index)


def inputs_of(nest: Nest) -> list[Value]:
    found: dict[Value, None] = {}
    for root in nest.scalars:
        for node in walk(root):
            if isinstance(node, Load):
                found[node.value] = None
    return list(found)


def sizes_of(nest: Nest, values: Sequence[Value]) -> list[str]:
    """The names of the symbolic sizes that the kernel has to be told."""
    indices = [s for v in values for s in (*v.shape, *v.strides, *compact_strides(v.shape))]
    indices += [a.extent for a in (*nest.rows, *nest.cols)]
    indices += nest.offsets()
    indices += [index for root in nest.scalars for index in indices_of(root)]
    return sorted(symbols_in(indices))
