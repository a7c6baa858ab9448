"""Read a legalised Relax module into loop form.

`LegalizeOps` turns every Relax op into a PrimFunc of TE blocks: spatial and reduction axes, one store, an expression
over loads. Such a block is a computation. A PrimFunc with anything else in it is kept whole and run as it is.
"""

# TVM sets the attributes of its classes from C++.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, relax, tirx
from tvm.s_tir import SBlock, SBlockRealize

from bridge.backends.tvm.index import Axis, Data, Index, Size
from bridge.backends.tvm.loops import Call, Computation, Loops, Opaque, Step, Value
from bridge.backends.tvm.scalar import Constant, Guarded, Load, Operation, Position, Rewriter, Scalar
from bridge.backends.tvm.sizes import told

COMBINERS = {"Add": "sum", "Mul": "prod", "Max": "max", "Min": "min", "And": "all", "Or": "any"}
BINARY = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.Div,
    tirx.Mod,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.Max,
    tirx.Min,
    tirx.EQ,
    tirx.NE,
    tirx.LT,
    tirx.LE,
    tirx.GT,
    tirx.GE,
    tirx.And,
    tirx.Or,
    tirx.BitwiseAnd,
    tirx.BitwiseOr,
    tirx.BitwiseXor,
    tirx.LShift,
    tirx.RShift,
)


class NotALoop(Exception):
    """The PrimFunc is not made of blocks that are computations."""


def dtype_of(expr: Any) -> str:
    """The element type of a TVM expression or buffer."""
    return str(expr.ty.dtype)


class Reader:
    """Reads one module.

    names: for a variable the node that it stands for, where it stands for one; all else goes by nodes.
    owners: for such a variable the node whose row made it, and what comes before it since the last one.
    strides: those that a value has in memory by the edge contract. views: what a value is a torch view of.
    into: the input in whose memory a value is to lie.
    """

    def __init__(
        self,
        module: ir.IRModule,
        names: Mapping[str, str],
        owners: Mapping[str, str],
        strides: Mapping[str, Sequence[Index]],
        views: Mapping[str, str],
        into: Mapping[str, str],
    ) -> None:
        self._module = module
        self._names = names
        self._owners = owners
        self._owned = 0
        self._strides = strides
        self._views = views
        self._into = into
        self._values: dict[str, Value] = {}
        self._bound: dict[Any, Value | tuple[Value, ...]] = {}
        self._steps: list[Step] = []
        self._constants: dict[Value, Any] = {}
        self._node = ""

    def read(self) -> Loops:
        """The program in loop form. Raises ValueError for a binding that is neither a kernel nor a call-out."""
        main = self._module["main"]
        tensors = [p for p in main.params if not isinstance(p.ty, relax.ShapeType)]
        inputs = tuple(self._value(p.name, p.ty) for p in tensors)
        self._bound.update(zip(tensors, inputs, strict=True))
        for block in main.body.blocks:
            for binding in block.bindings:
                self._binding(binding)
                self._own(binding.var.name)
        outputs = self._tuple(main.body.body)
        views = {self._values[v]: self._values[b] for v, b in self._views.items() if v in self._values}
        into = {self._values[v]: self._values[t] for v, t in self._into.items() if v in self._values}
        return Loops(inputs, self._steps, outputs, views, self._constants, into)

    def _own(self, variable: str) -> None:
        """The steps since the last variable of a node belong to the node of this one."""
        if variable in self._owners:
            for step in self._steps[self._owned :]:
                if not isinstance(step, Call):
                    step.nodes = (self._owners[variable],)
            self._owned = len(self._steps)

    def _binding(self, binding: Any) -> None:
        name, expr = self._names.get(binding.var.name, binding.var.name), binding.value
        if isinstance(expr, relax.TupleGetItem):
            self._bound[binding.var] = self._renamed(name, self._tuple(expr.tuple_value)[expr.index])
        elif isinstance(expr, relax.Tuple):
            self._bound[binding.var] = tuple(self._tensor(f) for f in expr.fields)
        elif isinstance(expr, relax.Var):
            self._bound[binding.var] = self._bound[expr]
        elif isinstance(expr, ir.GenericConst):
            self._bound[binding.var] = self._tensor(expr)
        elif isinstance(expr, relax.Call):
            self._bound[binding.var] = self._call(name, binding.var.ty, expr)
        else:
            raise ValueError(f"{name}: cannot read {type(expr).__name__}")

    def _renamed(self, name: str, value: Value) -> Value:
        """A picked result goes by the name of its binding, which is what the edge contract knows it by."""
        without_dims = not value.shape and name in self._names.values()
        if value.name not in self._strides and (name in self._strides or without_dims):
            value.name, value.strides = name, tuple(self._strides.get(name, ()))
            value.told = bool(value.strides)
        self._values[name] = value
        return value

    def _call(self, name: str, ty: Any, expr: Any) -> Value | tuple[Value, ...]:
        op = expr.op.name if isinstance(expr.op, ir.Op) else ""
        if op == "relax.call_tir":
            return self._call_tir(name, ty, expr)
        if op in ("relax.call_dps_packed", "relax.call_pure_packed"):
            arguments = expr.args[1:] if op == "relax.call_pure_packed" else self._fields(expr.args[1])
            inputs = tuple(
                self._tensor(a) for a in arguments if not isinstance(a.ty, relax.ShapeType | relax.TupleType)
            )
            results = self._results(name, ty)
            self._steps.append(Call(name, inputs, results))
            return results if isinstance(ty, relax.TupleType) else results[0]
        raise ValueError(f"{name}: {op or expr.op} was not legalised")

    def _call_tir(self, name: str, ty: Any, expr: Any) -> Value | tuple[Value, ...]:
        function = self._module[expr.args[0]]
        fields = self._fields(expr.args[1])
        inputs = tuple(self._tensor(a) for a in fields if not isinstance(a.ty, ir.PrimType))
        results = self._results(name, ty)
        given = [a for a in fields if isinstance(a.ty, ir.PrimType)]
        given += list(expr.args[2].values) if len(expr.args) > 2 else []
        sizes = tuple(Bodies({}, {}).index(e) for e in given)
        try:
            steps = computations(function, (*inputs, *results), sizes, name)
        except NotALoop:
            steps = [Opaque(expr.args[0].name_hint, sizes_last(function), inputs, results, sizes)]
        self._steps.extend(steps)
        return results if isinstance(ty, relax.TupleType) else results[0]

    def _results(self, name: str, ty: Any) -> tuple[Value, ...]:
        if not isinstance(ty, relax.TupleType):
            return (self._value(name, ty),)
        return tuple(self._value(f"{name}_{i}", t) for i, t in enumerate(ty.fields))

    def _value(self, name: str, ty: Any) -> Value:
        if not isinstance(ty, relax.TensorType) or ty.shape is None:  # only call-outs touch what TVM has no type for
            self._values[name] = Value(name, (), "object")
            return self._values[name]
        shape = tuple(Bodies({}, {}).index(e) for e in ty.shape.values)
        value = Value(name, shape, str(ty.dtype), tuple(self._strides.get(name, ())))
        self._values[name] = value
        return value

    def _fields(self, expr: Any) -> Sequence[Any]:
        return expr.fields if isinstance(expr, relax.Tuple) else [expr]

    def _tuple(self, expr: Any) -> tuple[Value, ...]:
        if isinstance(expr, relax.Tuple):
            return tuple(self._tensor(f) for f in expr.fields)
        found = self._bound[expr]
        return found if isinstance(found, tuple) else (found,)

    def _tensor(self, expr: Any) -> Value:
        if isinstance(expr, ir.GenericConst):
            array = expr.value.numpy()
            if not array.shape:
                return self._number(array, expr.ty)
            value = self._value(f"constant_{len(self._constants)}", expr.ty)
            self._constants[value] = array
            return value
        found = self._bound[expr]
        if isinstance(found, tuple):
            raise ValueError(f"{expr}: a tuple stands where a tensor is wanted")
        return found

    def _number(self, array: Any, ty: Any) -> Value:
        """A 0-d constant is written into the kernels that read it."""
        value = Value(f"number_{len(self._steps)}", (), str(ty.dtype))
        number = bool(array) if value.dtype == "bool" else int(array) if "int" in value.dtype else float(array)
        self._steps.append(Computation(value, (), Constant(number, value.dtype)))
        return value


def computations(function: Any, values: Sequence[Value], sizes: Sequence[Index], name: str) -> list[Step]:
    """The blocks of a PrimFunc as computations over `values`, one for each buffer parameter. Raises NotALoop."""
    held, numbers = _parameters(function)
    buffers: dict[Any, Value] = dict(zip(held, values, strict=True))
    symbols: dict[Any, Index] = dict(zip(numbers, sizes, strict=True))
    for buffer, value in buffers.items():
        for size, known in zip(buffer.shape, value.shape, strict=True):
            if isinstance(size, tirx.Var):
                symbols.setdefault(size, known)
    root = function.body
    if not isinstance(root, SBlockRealize) or not isinstance(root.block, SBlock):
        raise NotALoop(f"{name}: no root block")
    bodies = Bodies(buffers, symbols)
    for number, buffer in enumerate(root.block.alloc_buffers):
        shape = tuple(bodies.index(s) for s in buffer.shape)
        buffers[buffer] = Value(f"{name}.{buffer.name}.{number}", shape, dtype_of_buffer(buffer))
    found: list[Step] = [_block(block, bodies) for block in _blocks(root.block.body)]
    made = {c.out for c in found if isinstance(c, Computation)}
    if not all(v in made for v in values[-1:]) or len(made) != len(found):
        raise NotALoop(f"{name}: a buffer is written twice, or not at all")
    return found


def _parameters(function: Any) -> tuple[list[Any], list[Any]]:
    """The parameters that are buffers, and those that are sizes."""
    numbers = [p for p in function.params if isinstance(p.ty, ir.PrimType)]
    return [p for p in function.params if not isinstance(p.ty, ir.PrimType)], numbers


def sizes_last(function: Any) -> Any:
    """The function with its sizes after its buffers, which is how the program calls every kernel."""
    held, numbers = _parameters(function)
    if [*held, *numbers] == list(function.params):
        return function
    return tirx.PrimFunc([*held, *numbers], function.body, function.ret_type, attrs=function.attrs)


def dtype_of_buffer(buffer: Any) -> str:
    """The element type of a buffer."""
    return str(buffer.dtype)


def _blocks(stmt: Any) -> list[Any]:
    if isinstance(stmt, tirx.SeqStmt):
        return [block for s in stmt.seq for block in _blocks(s)]
    while isinstance(stmt, tirx.For):
        stmt = stmt.body
    if isinstance(stmt, SBlockRealize) and isinstance(stmt.predicate, tirx.IntImm) and bool(stmt.predicate.value):
        return [stmt.block]
    raise NotALoop(f"a {type(stmt).__name__} among the blocks")


def _block(block: Any, outer: Bodies) -> Computation:
    """One block as a computation. Raises NotALoop where it is none."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or block.alloc_buffers or block.match_buffers:
        raise NotALoop(f"block {block.name_hint} is more than one store")
    axes: dict[Any, Axis] = {}
    for it in block.iter_vars:
        if int(it.dom.min) != 0:
            raise NotALoop(f"block {block.name_hint} has an axis that does not start at zero")
        axes[it.var] = Axis(it.var.name, outer.index(it.dom.extent))
    bodies = Bodies(outer.buffers, {**outer.symbols, **{v: Index.of(a) for v, a in axes.items()}})
    spatial: list[Axis] = []
    for i in store.indices:
        if isinstance(i, tirx.IntImm) and int(i) == 0:
            spatial.append(Axis("one", Index.of(1)))
        elif i in axes and axes[i] not in spatial:
            spatial.append(axes[i])
        else:
            raise NotALoop(f"block {block.name_hint} stores to {i}")
    reduced = tuple(a for it in block.iter_vars for a in [axes[it.var]] if a not in spatial and a.extent != 1)
    unit = {a: Index({}) for a in axes.values() if a.extent == 1 and a not in spatial}
    out = outer.buffers[store.buffer]
    if block.init is None:
        if reduced:
            raise NotALoop(f"block {block.name_hint} writes over itself")
        return Computation(out, tuple(spatial), _unit(bodies.scalar(store.value), unit))
    kind = type(store.value).__name__
    if kind not in COMBINERS or not _reads_itself(store.value.a, store):
        raise NotALoop(f"block {block.name_hint} reduces by {kind}")
    body = _unit(bodies.scalar(store.value.b), unit)
    return Computation(out, tuple(spatial), body, reduced, COMBINERS[kind])


def _unit(body: Scalar, unit: Mapping[Axis, Index]) -> Scalar:
    return Rewriter(unit)(body) if unit else body


def _reads_itself(expr: Any, store: Any) -> bool:
    return isinstance(expr, ir.TensorLoad) and expr.source.same_as(store.buffer)


OF_SIZES = {tirx.Min: "min", tirx.Max: "max", tirx.FloorDiv: "//", tirx.FloorMod: "%"}
"""What may be made of sizes, in Python's words."""


class Bodies:
    """Turns TVM expressions into scalars and indices, given what buffers and variables stand for."""

    def __init__(self, buffers: Mapping[Any, Value], symbols: Mapping[Any, Index]) -> None:
        self.buffers = buffers
        self.symbols = symbols

    def index(self, expr: Any) -> Index:
        """An integer expression as an index."""
        if isinstance(expr, int):
            return Index.of(expr)
        if isinstance(expr, tirx.IntImm):
            return Index.of(int(expr))
        if isinstance(expr, tirx.Var):
            return self.symbols[expr] if expr in self.symbols else Index.of(Size(expr.name))
        if isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
            a, b = self.index(expr.a), self.index(expr.b)
            return a + b if isinstance(expr, tirx.Add) else a - b if isinstance(expr, tirx.Sub) else a * b
        if isinstance(expr, tirx.FloorDiv | tirx.FloorMod) and _positive(expr.b):
            a, b = self.index(expr.a), self.index(expr.b)
            return a // b if isinstance(expr, tirx.FloorDiv) else a % b
        if isinstance(expr, tirx.Cast) and isinstance(self.scalar(expr.value), Position):
            return self.index(expr.value)
        if type(expr) in OF_SIZES:
            size = told(OF_SIZES[type(expr)], self.index(expr.a), self.index(expr.b))
            if size is not None:
                return size
        return Index.of(Data(self.scalar(expr)))

    def scalar(self, expr: Any) -> Scalar:
        """An expression as a scalar."""
        dtype = dtype_of(expr)
        if isinstance(expr, tirx.IntImm):
            return Constant(bool(expr.value) if dtype == "bool" else int(expr.value), dtype)
        if isinstance(expr, tirx.FloatImm):
            return Constant(float(expr.value), dtype)
        if isinstance(expr, tirx.Var):
            return Position(self.index(expr), dtype)
        if isinstance(expr, ir.TensorLoad):
            return Load(self.buffers[expr.source], tuple(self.index(i) for i in expr.indices))
        if isinstance(expr, BINARY):
            return self._binary(expr, dtype)
        if isinstance(expr, tirx.Cast):
            inner = self.scalar(expr.value)
            return Operation("Cast", (inner,), dtype)
        if isinstance(expr, tirx.Not):
            return Operation("Not", (self.scalar(expr.a),), dtype)
        if isinstance(expr, tirx.Select):
            parts = (expr.condition, expr.true_value, expr.false_value)
            return Operation("Select", tuple(self.scalar(p) for p in parts), dtype)
        if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op):
            return self._function(expr, dtype)
        raise NotALoop(f"a {type(expr).__name__} in a block")

    def _binary(self, expr: Any, dtype: str) -> Scalar:
        a, b = self.scalar(expr.a), self.scalar(expr.b)
        plain = isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul) or (
            isinstance(expr, tirx.FloorDiv | tirx.FloorMod) and _positive(expr.b)
        )
        if plain and dtype.startswith("int") and all(isinstance(s, Position | Constant) for s in (a, b)):
            return Position(self.index(expr), dtype)
        return Operation(type(expr).__name__, (a, b), dtype)

    def _function(self, expr: Any, dtype: str) -> Scalar:
        if expr.op.name.endswith(".if_then_else"):
            condition, then, otherwise = (self.scalar(a) for a in expr.args)
            return Guarded(condition, then, otherwise, dtype)
        arguments = []
        for argument in expr.args:
            if isinstance(argument, ir.StringImm):
                arguments.append(Constant(argument.value, "handle"))  # type: ignore[arg-type]
            else:
                arguments.append(self.scalar(argument))
        return Operation(expr.op.name, tuple(arguments), dtype)


def _positive(expr: Any) -> bool:
    """Whether an expression is a size that is divided by: a symbol or a number, or made of such."""
    if isinstance(expr, tirx.Add | tirx.Mul):
        return _positive(expr.a) and _positive(expr.b)
    return isinstance(expr, tirx.Var) or (isinstance(expr, tirx.IntImm) and int(expr) > 0)
