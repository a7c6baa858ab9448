"""What MetaSchedule found, as a kernel of ours: the same parameters, the same functions, and loops for torch's threads.

Its schedule is applied and lowered by TVM's passes up to vector lanes; then each function is written by our own
polynomial, a bfloat16 is rounded to where it is made, and a maximum keeps a NaN, which MetaSchedule has no words for.
"""

# TVM sets the attributes of its classes from C++, and takes numbers where its annotations ask for expressions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm

from bridge.backends.tvm.codegen import plain_loops
from bridge.backends.tvm.compat import IN_LANES, ir, tirx
from bridge.backends.tvm.schedule.combine import combined
from bridge.backends.tvm.schedule.emit import ON_THE_STACK, block, int64, span
from bridge.backends.tvm.schedule.functions import FUNCTIONS, rounded
from bridge.backends.tvm.schedule.integers import floor_division, floor_remainder, lanes_of
from bridge.backends.tvm.schedule.vector import width

WORKSPACE = 1 << 20
"""Bytes that a kernel may ask of TVM's runtime between its loops: what is large lies in torch's memory, or nowhere."""

EXTREMES = {tirx.Max: "max", tirx.Min: "min"}
DIVISIONS = {tirx.FloorDiv: floor_division, tirx.FloorMod: floor_remainder}

SMALL = 1 << 13
"""Bytes that lie on a thread's stack."""

STARTS = 256
"""How often a kernel may wake the threads in one run."""

AGAIN = 4
"""How many times over elements may be computed."""


class Unfit(Exception):
    """A schedule that need not be tried: it would keep too much beside torch's memory, or wake threads without end."""


def finished(function: Any, variables: Sequence[Any], name: str, stores: int) -> Any:
    """A scheduled function of blocks as loops over `variables`, the parameters as torch hands them over.

    stores: how many the blocks make if each element is computed once. Raises Unfit, and what TVM raises.
    """
    module = tvm.IRModule({"kernel": plain_loops(function).with_attr("global_symbol", "kernel")})
    loops = tvm.transform.Sequential([make() for make in IN_LANES])(module)["kernel"]
    body = _Elements(AGAIN * stores).statement(loops.body)
    declared = [tirx.DeclBuffer(flat, data=p.data) for flat, p in zip(loops.params, variables, strict=False)]
    made = tirx.PrimFunc(list(variables), block([*declared, body]))
    return made.with_attr("global_symbol", name).with_attr("tirx.noalias", True).with_attr("s_tir", True)


class _Elements:
    """Rewrites statements. `_before` collects what a statement needs to have been computed."""

    def __init__(self, stores: int) -> None:
        self._left = stores
        self._before: list[Any] = []
        self._names = 0
        self._bytes = 0
        self._trips = 1

    def statement(self, node: Any) -> Any:
        """A statement with its expressions rewritten."""
        if isinstance(node, tirx.SeqStmt):
            return tirx.SeqStmt([self.statement(s) for s in node.seq])
        if isinstance(node, tirx.For):
            body = self._body(node)
            return tirx.For(node.loop_var, node.min, node.extent, node.kind, body, None, node.annotations, node.step)
        if isinstance(node, tirx.IfThenElse):
            otherwise = None if node.else_case is None else self.statement(node.else_case)
            return tirx.IfThenElse(node.condition, self.statement(node.then_case), otherwise)
        if isinstance(node, tirx.AttrStmt):
            return tirx.AttrStmt(node.node, node.attr_key, node.value, self.statement(node.body))
        if isinstance(node, tirx.AllocBuffer):
            return self._allocated(node)
        if isinstance(node, tirx.BufferStore):
            value = self.expression(_endless(node.value))
            store = tirx.BufferStore(node.buffer, value, [self.expression(i) for i in node.indices])
            before, self._before = self._before, []
            self._left -= self._trips * lanes_of(node.value)
            if self._left < 0:
                raise Unfit("elements are computed many times over")
            return block([*before, store])
        if isinstance(node, tirx.Evaluate | tirx.DeclBuffer):
            return node
        raise Unfit(f"it has a {type(node).__name__}")

    def _body(self, loop: Any) -> Any:
        if loop.kind == tirx.ForKind.PARALLEL and self._trips > STARTS:
            raise Unfit(f"threads are woken {self._trips} times")
        before = self._trips
        self._trips *= int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 1
        body = self.statement(loop.body)
        self._trips = before
        return body

    def _allocated(self, node: Any) -> Any:
        own = math.prod(int(n) for n in node.buffer.shape) * width(str(node.buffer.dtype))
        self._bytes += own
        if self._bytes > WORKSPACE:
            raise Unfit(f"{node.buffer.name} is one of {self._bytes} bytes between loops")
        return tirx.AllocBuffer(node.buffer, ON_THE_STACK) if own <= SMALL else node

    def expression(self, node: Any) -> Any:
        """An expression with functions written out."""
        rewrite = self.expression
        kind = type(node)
        if kind in EXTREMES and "float" in str(node.ty.dtype):
            return combined(EXTREMES[kind], self._bound(rewrite(node.a)), self._bound(rewrite(node.b)))
        if kind in DIVISIONS and lanes_of(node) > 1:
            return DIVISIONS[kind](self._bound(rewrite(node.a)), self._bound(rewrite(node.b)))
        if hasattr(node, "a") and hasattr(node, "b"):
            return kind(rewrite(node.a), rewrite(node.b))
        if isinstance(node, ir.TensorLoad):
            return tirx.BufferLoad(node.source, [rewrite(i) for i in node.indices])
        if isinstance(node, tirx.Cast) and str(node.ty.dtype).startswith("bfloat16"):
            return rounded(rewrite(node.value), self._bound)
        if isinstance(node, tirx.Cast):
            return tirx.Cast(str(node.ty.dtype), rewrite(node.value))
        if isinstance(node, tirx.Not):
            return tirx.Not(rewrite(node.a))
        if isinstance(node, tirx.Select):
            return tirx.Select(rewrite(node.condition), rewrite(node.true_value), rewrite(node.false_value))
        if isinstance(node, tirx.Broadcast):
            return tirx.Broadcast(rewrite(node.value), node.lanes)
        if isinstance(node, tirx.Ramp):
            return tirx.Ramp(rewrite(node.base), rewrite(node.stride), node.lanes)
        if isinstance(node, ir.Call):
            return self._call(node)
        return node

    def _call(self, node: Any) -> Any:
        arguments = [self.expression(a) for a in node.args]
        written = FUNCTIONS.get(node.op.name) if isinstance(node.op, ir.Op) else None
        if written is None or not str(node.ty.dtype).startswith("float32"):
            return ir.Call(node.op, arguments, ret_ty=str(node.ty.dtype))
        return written(*(self._bound(a) for a in arguments), bind=self._bound)

    def _bound(self, expr: Any) -> Any:
        """The expression by way of a buffer that LLVM keeps in a register, filled before the statement in hand."""
        if isinstance(expr, tirx.Var | tirx.IntImm | tirx.FloatImm):
            return expr
        width = lanes_of(expr)
        at = [span(int64(0), width)]
        self._names += 1
        buffer = tirx.decl_buffer((int64(width),), str(expr.ty.dtype).split("x")[0], f"e{self._names}", scope="local")
        self._before += [tirx.AllocBuffer(buffer, ON_THE_STACK), tirx.BufferStore(buffer, expr, at)]
        return tirx.BufferLoad(buffer, at)


def _endless(value: Any) -> Any:
    """A maximum begins with TVM's smallest number, or MetaSchedule does not know it; ours with minus infinity."""
    constant = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(constant, tirx.FloatImm):
        return value
    dtype = str(constant.ty.dtype)
    for bound, wanted in ((tirx.min_value(dtype), -math.inf), (tirx.max_value(dtype), math.inf)):
        if constant.value == bound.value:
            infinity = tirx.FloatImm(dtype, wanted)
            return tirx.Broadcast(infinity, value.lanes) if constant is not value else infinity
    return value
