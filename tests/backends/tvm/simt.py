"""Runs a kernel for a GPU on the CPU: every thread of every block at once, statement by statement, in numpy.

All threads do each statement together, so a barrier has nothing to wait for, and what a missing one would let go wrong
is not seen; everything else is: indices out of bounds, what is never written, wrong orders and sums.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from tvm import tirx

WARP = 32
LEAST = numpy.float32(2.0**-126)
POISON = {"f": numpy.nan, "i": 77, "u": 77, "b": True}


def run(function: Any, tensors: Sequence[torch.Tensor], sizes: Sequence[int] = ()) -> None:
    """Call a scheduled function on tensors on the CPU."""
    Machine(function, tensors, sizes).run()


class Machine:
    """One launch. Values are arrays over threads, or numbers that are the same in all of them."""

    def __init__(self, function: Any, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        self._function = function
        self._vars: dict[Any, Any] = {}
        self._memory: dict[Any, numpy.ndarray] = {}
        self._space: dict[Any, str] = {}
        self._threads = self._per_block = 1
        for parameter, given in zip(function.params, [*tensors, *sizes], strict=True):
            if isinstance(given, torch.Tensor):
                self._memory[parameter] = _flat(given)
                self._space[parameter] = "global"
            else:
                self._vars[parameter] = given

    def run(self) -> None:
        with numpy.errstate(all="ignore"):
            self._do(self._function.body, None)

    # Statements ------------------------------------------------------------------------------------------------------

    def _do(self, stmt: Any, mask: Any) -> None:
        getattr(self, f"_do_{type(stmt).__name__}")(stmt, mask)

    def _do_SeqStmt(self, stmt: Any, mask: Any) -> None:
        for part in stmt.seq:
            self._do(part, mask)

    def _do_DeclBuffer(self, stmt: Any, mask: Any) -> None:
        self._memory[stmt.buffer], self._space[stmt.buffer] = self._memory[stmt.data.args[0]], "global"

    def _do_AllocBuffer(self, stmt: Any, mask: Any) -> None:
        buffer = stmt.buffer
        size = int(numpy.prod([int(n) for n in buffer.shape]))
        scope = str(buffer.scope() if callable(buffer.scope) else buffer.scope)
        count = self._threads if scope == "local" else self._threads // self._per_block
        dtype = numpy.dtype(str(buffer.dtype))
        self._memory[buffer] = numpy.full((count, size), POISON[dtype.kind], dtype)
        self._space[buffer] = scope

    def _do_AttrStmt(self, stmt: Any, mask: Any) -> None:
        extent = int(self._value(stmt.value))
        tag = stmt.node.thread_tag
        if tag == "threadIdx.x":
            self._per_block = extent
            blocks = self._threads
            self._threads *= extent
            self._vars = {k: numpy.repeat(v, extent) if numpy.ndim(v) else v for k, v in self._vars.items()}
            self._vars[stmt.node.var] = numpy.tile(numpy.arange(extent), blocks)
        else:
            self._threads *= extent
            self._vars[stmt.node.var] = numpy.arange(extent)
        self._do(stmt.body, mask)

    def _do_For(self, stmt: Any, mask: Any) -> None:
        for i in range(int(self._value(stmt.extent))):
            self._vars[stmt.loop_var] = i
            self._do(stmt.body, mask)

    def _do_IfThenElse(self, stmt: Any, mask: Any) -> None:
        condition = self._value(stmt.condition, mask)
        for wanted, body in ((condition, stmt.then_case), (numpy.logical_not(condition), stmt.else_case)):
            both = wanted if mask is None else numpy.logical_and(mask, wanted)
            if body is not None and numpy.any(both):
                self._do(body, both)

    def _do_Evaluate(self, stmt: Any, mask: Any) -> None:
        assert stmt.value.op.name == "tirx.tvm_storage_sync"
        assert mask is None or numpy.all(mask.reshape(-1, self._per_block) == mask.reshape(-1, self._per_block)[:, :1])

    def _do_BufferStore(self, stmt: Any, mask: Any) -> None:
        value = self._value(stmt.value, mask)
        (index,) = stmt.indices
        for lane, where in enumerate(self._lanes(index, mask)):
            part = value[lane] if isinstance(value, list) else value
            memory, place = self._place(stmt.buffer, where, mask)
            chosen = numpy.broadcast_to(part, self._threads)
            if mask is not None:
                on = numpy.broadcast_to(mask, self._threads)
                place, chosen = tuple(numpy.broadcast_to(p, self._threads)[on] for p in place), chosen[on]
            memory[place] = chosen

    def _place(self, buffer: Any, where: Any, mask: Any) -> tuple[numpy.ndarray, tuple[Any, ...]]:
        memory, space = self._memory[buffer], self._space[buffer]
        where = numpy.broadcast_to(where, self._threads)
        on = slice(None) if mask is None else numpy.broadcast_to(mask, self._threads)
        bad = (where[on] < 0) | (where[on] >= memory.shape[-1])
        assert not bad.any(), f"{buffer.name} is indexed by {where[on][bad][:4]} of {memory.shape[-1]}"
        where = numpy.clip(where, 0, memory.shape[-1] - 1)
        if space == "global":
            return memory, (where,)
        row = numpy.arange(self._threads)
        return memory, (row if space == "local" else row // self._per_block, where)

    # Expressions -----------------------------------------------------------------------------------------------------

    def _lanes(self, index: Any, mask: Any) -> list[Any]:
        if type(index).__name__ == "Ramp":
            base, stride = self._value(index.base, mask), self._value(index.stride)
            amiss = numpy.asarray(base) % int(index.lanes) != 0
            assert not numpy.any(amiss if mask is None else amiss & mask), "a patch begins between its places"
            return [base + lane * stride for lane in range(int(index.lanes))]
        return [self._value(index, mask)]

    def _value(self, expr: Any, mask: Any = None) -> Any:
        kind = type(expr).__name__
        if kind in ("IntImm", "FloatImm"):
            return numpy.dtype(str(expr.ty.dtype)).type(expr.value)
        if isinstance(expr, tirx.Var):
            return self._vars[expr]
        if kind == "TensorLoad":
            (index,) = expr.indices
            read = [self._read(expr.source, where, mask) for where in self._lanes(index, mask)]
            return read if len(read) > 1 else read[0]
        if kind == "Cast":
            return numpy.asarray(self._value(expr.value, mask)).astype(str(expr.ty.dtype))
        if kind == "Select":
            parts = [self._value(p, mask) for p in (expr.condition, expr.true_value, expr.false_value)]
            return numpy.where(*parts)
        if kind == "Not":
            return numpy.logical_not(self._value(expr.a, mask))
        if kind == "Call":
            return self._call(expr, mask)
        result = OPERATORS[kind](self._value(expr.a, mask), self._value(expr.b, mask))
        return numpy.asarray(result).astype(str(expr.ty.dtype))

    def _read(self, buffer: Any, where: Any, mask: Any) -> Any:
        memory, place = self._place(buffer, where, mask)
        return memory[place]

    def _call(self, expr: Any, mask: Any) -> Any:
        name = expr.op.name.removeprefix("tirx.")
        arguments = list(expr.args)
        if name in ("call_pure_extern", "call_extern"):
            name, arguments = arguments[0].value, arguments[1:]
        values = [self._value(a, mask) for a in arguments]
        if name == "tvm_warp_shuffle_xor":
            assert mask is None or numpy.all(mask.reshape(-1, WARP) == mask.reshape(-1, WARP)[:, :1])
            held = numpy.broadcast_to(values[1], self._threads)
            return held[numpy.arange(self._threads) ^ int(values[2])]
        if name == "reinterpret":
            return numpy.asarray(values[0]).view(str(expr.ty.dtype))
        if name in FUNCTIONS:
            return FUNCTIONS[name](*values)
        plain = str(name).removesuffix("f")
        made = getattr(torch, TORCH.get(plain, plain))(*(torch.from_numpy(numpy.array(v)) for v in values))
        return made.numpy().astype(str(expr.ty.dtype))


def _flat(tensor: torch.Tensor) -> numpy.ndarray:
    """The memory of a tensor as kernels see it: 16-bit floats as their bits, truth values as bytes."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    flat = tensor.detach().as_strided((reach,), (1,))
    if flat.dtype in (torch.bfloat16, torch.float16):
        return flat.view(torch.int16).numpy().view("uint16")
    return flat.view(torch.uint8).numpy() if flat.dtype == torch.bool else flat.numpy()


def _from(dtype: torch.dtype) -> Callable[[Any], Any]:
    def read(bits: Any) -> Any:
        return torch.from_numpy(numpy.array(bits).view("int16")).view(dtype).float().numpy()

    return read


def _to(dtype: torch.dtype) -> Callable[[Any], Any]:
    def write(value: Any) -> Any:
        return torch.from_numpy(numpy.array(value, "float32")).to(dtype).view(torch.int16).numpy().view("uint16")

    return write


def off(value: Any, units: int) -> Any:
    """A float32 as many units in the last place off as the hardware's may be, up or down by the bits of the number."""
    value = numpy.asarray(value, "float32")
    bits = value.view("int32")
    moved = (bits + numpy.where(bits & 5 == 0, -units, units).astype("int32")).view("float32")
    return numpy.where(numpy.isfinite(value) & (numpy.abs(value) >= LEAST) & (value != 1), moved, value)


def _or_0(value: Any) -> Any:
    """Zero of its sign for a denormal number."""
    return numpy.where(numpy.abs(value) < LEAST, numpy.copysign(numpy.float32(0), value), value)


def _divided(a: Any, b: Any) -> Any:
    if numpy.asarray(a).dtype.kind == "f":
        return numpy.divide(a, b)
    return numpy.trunc(numpy.asarray(a) / numpy.where(b == 0, 1, b)).astype(numpy.asarray(a).dtype)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": _divided,
    "Mod": lambda a, b: numpy.fmod(a, numpy.where(b == 0, 1, b)), "FloorDiv": numpy.floor_divide,
    "FloorMod": numpy.mod, "Max": numpy.maximum, "Min": numpy.minimum, "EQ": numpy.equal, "NE": numpy.not_equal,
    "LT": numpy.less, "LE": numpy.less_equal, "GT": numpy.greater, "GE": numpy.greater_equal,
    "And": numpy.logical_and, "Or": numpy.logical_or,
}  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isnan": numpy.isnan, "fabs": numpy.abs, "nearbyint": numpy.rint, "round": numpy.rint,
    "bitwise_and": numpy.bitwise_and, "bitwise_or": numpy.bitwise_or, "bitwise_xor": numpy.bitwise_xor,
    "bitwise_not": numpy.invert, "shift_left": numpy.left_shift, "shift_right": numpy.right_shift,
    "bridge_from_bfloat16": _from(torch.bfloat16), "bridge_from_float16": _from(torch.float16),
    "bridge_to_bfloat16": _to(torch.bfloat16), "bridge_to_float16": _to(torch.float16),
    "bridge_beside_bfloat16": _to(torch.bfloat16),
    "bridge_rounded_to_bfloat16": lambda v: _from(torch.bfloat16)(_to(torch.bfloat16)(v)),
    "bridge_rounded_to_float16": lambda v: _from(torch.float16)(_to(torch.float16)(v)),
    "bridge_exp2": lambda v: off(numpy.exp2(v), 2), "bridge_exp2_or_0": lambda v: _or_0(off(numpy.exp2(_or_0(v)), 2)),
    "bridge_reciprocal": lambda v: _or_0(off(1 / _or_0(v), 1)), "bridge_divided": lambda v, w: off(v / w, 2),
    "bridge_larger": numpy.maximum, "bridge_smaller": numpy.minimum,
    "bridge_within": lambda v, w: numpy.maximum(numpy.minimum(v, w), -w),
    "__int_as_float": lambda v: numpy.asarray(v).view("float32"),
    "__float_as_int": lambda v: numpy.asarray(v).view("int32"),
    "__longlong_as_double": lambda v: numpy.asarray(v).view("float64"),
    "__double_as_longlong": lambda v: numpy.asarray(v).view("int64"),
    "isinf": numpy.isinf, "isfinite": numpy.isfinite,
}  # fmt: skip

TORCH = {"lgamma": "lgamma", "tgamma": "exp", "abs": "abs", "fabs": "abs"}
