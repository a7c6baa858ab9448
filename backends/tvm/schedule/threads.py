"""What one thread of a GPU computes: its statements, and scalars in its registers.

16-bit floats lie in memory as their bits, so that moving them costs nothing, and are held as float32: what rounds
between two operations rounds a float32. Truth values lie in memory as bytes. Functions are those of CUDA's mathematical
library in full precision, which eager calls too, but where `near.py` says that less will do.
"""

# TVM takes numbers where its annotations ask for expressions.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
from tvm import ir, tirx

from bridge.backends.tvm.index import Axis, Index
from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.scalar import Constant, Load, Operation, Scalar
from bridge.backends.tvm.schedule.elements import constant, operation
from bridge.backends.tvm.schedule.emit import EXACT, Code, Emitter
from bridge.backends.tvm.schedule.integers import cast
from bridge.backends.tvm.schedule.near import NEAR
from bridge.backends.tvm.schedule.vector import Lanes

BITS: Mapping[str, str] = {"bfloat16": "uint16", "float16": "uint16"}
"""Types that lie in memory as their bits."""

MEMORY: Mapping[str, str] = {**BITS, "bool": "uint8"}
"""What types lie in memory as, where that is not by their own name."""

TO_FLOAT = {"bfloat16": "bridge_from_bfloat16", "float16": "bridge_from_float16"}
TO_BITS = {"bfloat16": "bridge_to_bfloat16", "float16": "bridge_to_float16"}
BESIDE = {"bfloat16": "bridge_beside_bfloat16", "float16": "bridge_to_float16"}
ROUNDED = {"bfloat16": "bridge_rounded_to_bfloat16", "float16": "bridge_rounded_to_float16"}
"""Functions that the source of kernels begins with."""

LIBRARY = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "exp10", "exp2"),
        *("expm1", "fmod", "hypot", "log", "log10", "log1p", "log2", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan"),
        "tanh",
    }
)
"""Functions that are called by the library's name. TVM has fast ones for some, which are off by 3e-5."""


SAME_BITS: Mapping[tuple[str, str], str] = {
    ("int32", "float32"): "__int_as_float", ("float32", "int32"): "__float_as_int",
    ("int64", "float64"): "__longlong_as_double", ("float64", "int64"): "__double_as_longlong",
}  # fmt: skip
"""CUDA's functions from a float to the integer of its bits and back. Among integers a conversion keeps them."""

ROLLED = "rolled"
"""What the variables of loops are called that the compiler is told to leave as they are."""

IN_THREADS = 3
"""The depth of statements inside of a block's threads and of nothing else."""


class ThreadCode(Code):
    """Statements of one thread among many."""

    @contextmanager
    def thread(self, tag: str, extent: Any) -> Iterator[Any]:
        """What is inside runs once for each block, or each thread of it."""
        variable = tirx.Var(tag.replace(".", "_"), extent.ty.dtype)
        bound = tirx.IterVar(ir.Range.from_min_extent(tirx.IntImm(extent.ty.dtype, 0), extent), variable, 1, tag)
        with self.scope(lambda body: tirx.AttrStmt(bound, "thread_extent", extent, body)):
            yield variable

    @contextmanager
    def where(self, condition: Any | None) -> Iterator[None]:
        """What is inside runs where a condition holds; always, where there is none."""
        if condition is None:
            yield
            return
        with self.scope(lambda body: tirx.IfThenElse(condition, body, None)):
            yield

    def shared(self, dtype: str, size: int) -> Any:
        """A buffer of the whole block."""
        buffer = tirx.decl_buffer((size,), dtype, self.name("s"), scope="shared")
        self.add(tirx.AllocBuffer(buffer), IN_THREADS)
        return buffer

    def barrier(self) -> None:
        """No thread of the block goes on before all of them are here, and what they wrote can be read."""
        self.add(tirx.Evaluate(ir.Call(ir.Op.get("tirx.tvm_storage_sync"), [ir.StringImm("shared")], ret_ty="int32")))


class ThreadEmitter(Emitter):
    """Writes scalars for a thread. `registers`: where what was read from memory is held, by value and index."""

    def __init__(
        self, code: ThreadCode, flat: Mapping[Value, Any], sizes: Mapping[str, Any], rows: Sequence[Axis], integer: str
    ) -> None:
        super().__init__(code, flat, sizes, rows, Lanes(None, 1))
        self.integer = integer
        self.outermost = IN_THREADS
        self.registers: dict[tuple[Value, tuple[Index, ...]], tuple[Any, Index]] = {}

    def register(self, dtype: str) -> str:
        return "float32" if dtype in BITS else dtype

    def in_memory(self, root: Scalar, dtype: str, beside: bool) -> Any:
        """A scalar in the type that it lies in memory as. beside: next to others of it, in registers at first."""
        expr = self.scalar(root)
        return cast(expr, "uint8") if dtype == "bool" else as_bits(expr, dtype, BESIDE if beside else TO_BITS)

    def raw(self, load: Load) -> Any:
        """An element as it lies in memory, read from there."""
        return tirx.BufferLoad(self._flat[load.value], [self.place(load)])

    def _written(self, node: Scalar, axes: frozenset[Axis], depth: int) -> Any:
        if isinstance(node, Constant):
            return literal(node.value, node.dtype)
        if isinstance(node, Load):
            held = self.registers.get((node.value, node.index))
            raw = self.raw(node) if held is None else tirx.BufferLoad(held[0], [self.index(held[1])])
            return tirx.NE(raw, tirx.IntImm("uint8", 0)) if node.dtype == "bool" else as_float(raw, node.dtype)
        if isinstance(node, Operation):
            arguments = [self.scalar(a) for a in node.arguments]
            return computed(node, arguments, lambda expr: self.bind(expr, depth))
        return super()._written(node, axes, depth)


def computed(node: Operation, arguments: list[Any], bind: Callable[[Any], Any]) -> Any:
    """An operation on what is held in registers."""
    kinds = [a.dtype for a in node.arguments]
    if node.name == "Cast":
        return converted(arguments[0], kinds[0], node.dtype)
    if node.name == "Select":
        return tirx.Select(*arguments)
    if node.name == "tirx.reinterpret":
        bits = reinterpreted(as_bits(arguments[0], kinds[0]), BITS.get(node.dtype, node.dtype))
        return as_float(bits, node.dtype)
    dtype = "float32" if node.dtype in BITS else node.dtype
    made = _function(Operation(node.name, node.arguments, dtype), arguments, bind)
    return made if node.name in EXACT else rounded(made, node.dtype)


def _function(node: Operation, arguments: list[Any], bind: Callable[[Any], Any]) -> Any:
    if node.name in NEAR:
        return NEAR[node.name](*map(bind, arguments), bind=bind)
    name = node.name.removeprefix("tirx.")
    if node.dtype in ("float32", "float64"):
        one = constant(1.0, node.dtype)
        if name == "sigmoid":
            return one / (one + called("exp", node.dtype, constant(0.0, node.dtype) - arguments[0]))
        if name in LIBRARY:
            return called(name, node.dtype, *arguments)
    return operation(node, arguments, bind)


def called(name: str, dtype: str, *arguments: Any) -> Any:
    """A function of C's mathematical library."""
    return tirx.call_pure_extern(dtype, f"{name}f" if dtype == "float32" else name, *arguments)


def reinterpreted(expr: Any, dtype: str) -> Any:
    """The same bits as another type."""
    name = SAME_BITS.get((str(expr.ty.dtype), dtype))
    return cast(expr, dtype) if name is None else tirx.call_pure_extern(dtype, name, expr)


def literal(value: Any, dtype: str) -> Any:
    """A number as it is held in a register."""
    if dtype in BITS:
        return constant(_rounded(float(value), dtype), "float32")
    return constant(value, dtype)


def _rounded(value: float, dtype: str) -> float:
    """A number as the 16-bit float nearest to it."""
    with numpy.errstate(over="ignore"):
        if dtype == "float16":
            return float(numpy.float16(value))
        bits = numpy.float32(value).view(numpy.uint32)
    if numpy.isnan(value):
        return value
    return float(numpy.uint32((int(bits) + 0x7FFF + (int(bits) >> 16 & 1)) & 0xFFFF0000).view(numpy.float32))


def converted(expr: Any, given: str, wanted: str) -> Any:
    """A number in another type."""
    if given == wanted:
        return expr
    return rounded(cast(expr, "float32"), wanted) if wanted in BITS else cast(expr, wanted)


def as_float(bits: Any, dtype: str) -> Any:
    """A 16-bit float as it lies in memory as float32; what is none as it is."""
    return tirx.call_pure_extern("float32", TO_FLOAT[dtype], bits) if dtype in BITS else bits


def as_bits(expr: Any, dtype: str, how: Mapping[str, str] = TO_BITS) -> Any:
    """What is held for a 16-bit float as the bits of it; what is none as it is. Rounding twice is rounding once."""
    if dtype not in BITS:
        return expr
    if isinstance(expr, ir.Call):
        name, *arguments = [*expr.args, None]
        if getattr(name, "value", None) == TO_FLOAT[dtype]:
            return arguments[0]
        if getattr(name, "value", None) == ROUNDED[dtype]:
            expr = arguments[0]
    return tirx.call_pure_extern("uint16", how[dtype], expr)


def rounded(expr: Any, dtype: str) -> Any:
    """A float32 rounded to a 16-bit float, where it is to be one."""
    return tirx.call_pure_extern("float32", ROUNDED[dtype], expr) if dtype in BITS else expr
