"""PrimFuncs that are run as they are: TVM's default order of loops, but arguments that may begin anywhere, and what is
cheap is computed where it would be read."""

# TVM sets the attributes of its classes from C++, and takes numbers where its annotations ask for expressions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm_ffi.serialization import from_json_graph_str

from bridge.backends.tvm.codegen import plain_loops
from bridge.backends.tvm.index import Index, Size
from bridge.backends.tvm.loops import Computation, Opaque, Value
from bridge.backends.tvm.scalar import indices_of, symbols_in
from bridge.backends.tvm.schedule.emit import Code, Emitter, block
from bridge.backends.tvm.schedule.integers import cast
from bridge.backends.tvm.schedule.parameters import Extents, Scheduled, as_handed_over
from bridge.backends.tvm.schedule.vector import Lanes, width
from bridge.backends.tvm.sizes import text_of


class Reading(Enum):
    """How a function reads a buffer: each element once, or several times at an index of plain loops, or anyhow."""

    ONCE = "once"
    PLAINLY = "plainly"
    ANYHOW = "anyhow"


def scheduled_opaque(step: Opaque) -> Scheduled:
    """The step's function as loops that compute what they need not read, its buffers aligned to their elements only."""
    function = plain_loops(step.function)
    if any(isinstance(argument, Computation) for argument in step.arguments):
        return _Writer(step, function).write()
    return Scheduled(aligned(function), step.arguments, step.outputs, [text_of(size) for size in step.sizes])


def aligned(function: Any) -> Any:
    """The function with buffers that begin anywhere.

    TVM takes for granted that memory begins on 64 bytes, and a view that does not would end the process. Buffers are
    variables that cannot be exchanged from Python, so their types are changed where they are written down.
    """
    nodes = json.loads(tvm.ir.save_json(function))
    for node in nodes["nodes"]:
        if node["type"] == "tirx.BufferType":
            element = nodes["nodes"][node["data"]["dtype"]]
            node["data"]["data_alignment"] = width(element["data"]["dtype"])
    return from_json_graph_str(json.dumps(nodes)).without_attr("global_symbol")


def readings(function: Any) -> list[Reading]:
    """How a function reads each of its buffers, in their order; those that it writes too."""
    function = plain_loops(function)
    buffers = [p for p in function.params if not isinstance(p.ty, ir.PrimType)]
    found: dict[Any, list[tuple[Any, tuple[Any, ...]]]] = {buffer: [] for buffer in buffers}
    for part, loops in _parts(function.body, ()):
        for load in _loads(part):
            found.setdefault(load.source, []).append((load, loops))
    return [_reading(found[buffer]) for buffer in buffers]


def _reading(loads: Sequence[tuple[Any, tuple[Any, ...]]]) -> Reading:
    """Of a buffer that is loaded so: each time the load, and the loops around it, outermost first."""
    if not loads or any(inner != loads[0][1] for _, inner in loads):
        return Reading.ANYHOW
    first, loops = loads[0]
    if any(not tvm_ffi.structural_equal(list(load.indices), list(first.indices)) for load, _ in loads):
        return Reading.ANYHOW
    walked = [i for i in first.indices if not isinstance(i, tirx.IntImm)]
    variables = [loop.loop_var for loop in loops if isinstance(loop, tirx.For)]
    if len(variables) < len(loops) or len(set(walked)) < len(walked) or any(i not in variables for i in walked):
        return Reading.ANYHOW
    return Reading.ONCE if len(walked) == len(variables) else Reading.PLAINLY


def _parts(statement: Any, loops: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The statements that hold no others, and conditions, with the loops around them."""
    if isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from _parts(part, loops)
    elif isinstance(statement, tirx.AttrStmt):
        yield from _parts(statement.body, loops)
    elif isinstance(statement, tirx.For):
        yield from ((extent, (*loops, statement.extent)) for extent in (statement.min, statement.extent))
        yield from _parts(statement.body, (*loops, statement))
    elif isinstance(statement, tirx.IfThenElse):
        yield statement.condition, loops
        for branch in (statement.then_case, statement.else_case):
            if branch is not None:
                yield from _parts(branch, loops)
    elif isinstance(statement, tirx.BufferStore | tirx.Bind | tirx.Evaluate):
        yield statement, loops
    else:
        yield statement, (*loops, statement)  # what is in it stays as it is


def _loads(part: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(part, (ir.TensorLoad, found.append))
    return found


class _Writer:
    """Writes loops anew, with expressions for what they would have loaded."""

    def __init__(self, step: Opaque, function: Any) -> None:
        self._step, self._function = step, function
        held = [p for p in function.params if not isinstance(p.ty, ir.PrimType)]
        count = len(step.arguments)
        self._outputs = held[count:]
        self._kept = {b: a for b, a in zip(held, step.arguments, strict=False) if isinstance(a, Value)}
        self._computed = {b: a for b, a in zip(held, step.arguments, strict=False) if isinstance(a, Computation)}
        numbers = [p for p in function.params if isinstance(p.ty, ir.PrimType)]
        self._sizes: dict[Any, Index] = dict(zip(numbers, step.sizes, strict=True))
        self._tell_lost_sizes()
        self._top = Code()
        told = {size: variable for variable, size in self._sizes.items()}
        self._symbols = {
            name: told[size] if (size := Index.of(Size(name))) in told else tirx.Var(f"z{number}", "int64")
            for number, name in enumerate(sorted(self._symbols_needed()))
        }

    def write(self) -> Scheduled:
        read = [value for value in self._step.inputs if value not in self._kept.values()]
        extents = Extents(self._symbols)
        flat: dict[Value, Any] = {}
        buffers = [self._buffer(value, number, extents, flat) for number, value in enumerate(read)]
        self._flat = flat
        self._top.add(block(self._rewritten(self._function.body)))
        sizes = {**self._sizes, **{v: Index.of(Size(name)) for name, v in self._symbols.items()}}
        parameters = [*self._kept, *buffers, *self._outputs, *sizes]
        function = tirx.PrimFunc(parameters, self._top.finish(), self._function.ret_type, attrs=self._function.attrs)
        inputs = [*self._kept.values(), *read]
        return Scheduled(aligned(function), inputs, self._step.outputs, [text_of(size) for size in sizes.values()])

    def _symbols_needed(self) -> set[str]:
        indices = [i for computed in self._computed.values() for i in indices_of(computed.body)]
        return symbols_in([*indices, *(n for v in self._step.inputs for n in (*v.shape, *v.strides, v.reach))])

    def _tell_lost_sizes(self) -> None:
        """Sizes that only the shapes of buffers told that are no longer given become parameters."""
        told = {size for buffer in (*self._kept, *self._outputs) for size in buffer.shape}
        for buffer, computed in self._computed.items():
            for size, known in zip(buffer.shape, computed.out.shape, strict=True):
                if isinstance(size, tirx.Var) and size not in told:
                    self._sizes.setdefault(size, known)

    def _buffer(self, value: Value, number: int, extents: Extents, flat: dict[Value, Any]) -> Any:
        """A buffer as torch hands it over. Under the value's name in `flat`: its memory, in one dimension."""
        buffer, flat[value], statement = as_handed_over(value, number, extents, value.dtype)
        self._top.add(statement)
        return buffer

    def _rewritten(self, statement: Any) -> list[Any]:
        """A statement, after those that compute what it would have loaded."""
        if isinstance(statement, tirx.SeqStmt):
            return [one for part in statement.seq for one in self._rewritten(part)]
        if isinstance(statement, tirx.AttrStmt):
            body = block(self._rewritten(statement.body))
            return [tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)]
        if isinstance(statement, tirx.For):
            body = block(self._rewritten(statement.body))
            return [tirx.For(statement.loop_var, statement.min, statement.extent, statement.kind, body)]
        if isinstance(statement, tirx.IfThenElse):
            before, condition = self._computing(statement.condition)
            then, otherwise = (
                None if branch is None else block(self._rewritten(branch))
                for branch in (statement.then_case, statement.else_case)
            )
            return [*before, tirx.IfThenElse(condition, then, otherwise)]
        before, after = self._computing(statement)
        return [*before, after]

    def _computing(self, part: Any) -> tuple[list[Any], Any]:
        """Statements that compute what a part loads, and the part with what they computed in place of the loads."""
        loads = [load for load in _loads(part) if load.source in self._computed]
        if not loads:
            return [], part
        code = Code()
        made: dict[Any, Any] = {}
        for load in loads:
            if load.source not in made:
                made[load.source] = self._element(load, code)

        def put(load: Any) -> Any:
            return made.get(load.source, load)

        return code.statements, tvm_ffi.structural_map(part, (ir.TensorLoad, put))

    def _element(self, load: Any, code: Code) -> Any:
        """What is computed for one element, under a name."""
        computed = self._computed[load.source]
        emit = Emitter(code, self._flat, self._symbols, (), Lanes(None, 1))
        emit.axes = {axis: cast(i, "int64") for axis, i in zip(computed.axes, load.indices, strict=True)}
        emit.count([computed.body])
        return emit.bind(emit.scalar(computed.body), code.depth)
