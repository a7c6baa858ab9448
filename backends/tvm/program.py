"""The program of a graph: readable Python that allocates in torch's memory, calls kernels, calls out, and lets go.

Each step says which nodes it stands for and which line of the user's asked for them. Two nodes can share a kernel but
not a step, so provenance belongs to the step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from bridge.backends.tvm.bounds import checker, counter, sized
from bridge.backends.tvm.built import ALIGNED, Built
from bridge.backends.tvm.copies import copied_back, copy_event
from bridge.backends.tvm.lowered import Plan, tensor_outputs
from bridge.backends.tvm.memory import empty_strided, empty_strided_cuda, reinterpret, torch_dtype
from bridge.backends.tvm.tensors import Copier, on_its_device, written_out
from bridge.ir.callout import callout, callout_inputs
from bridge.ir.compiled import CallOut, CompiledGraph, Way
from bridge.ir.joint import Role
from bridge.ir.nodes import op_name
from bridge.ir.provenance import source_line
from bridge.ir.shapes import is_size, new_symbols_of, symbols_in
from bridge.ir.sizes import solved, text_of, told_together
from bridge.ir.views import is_view, lies_alike, root_of, shows
from bridge.ledger import Ledger

aten = torch.ops.aten

DIRECT = {
    aten.mm.default: torch.mm,
    aten.bmm.default: torch.bmm,
    aten.addmm.default: torch.addmm,
}
"""Overloads that torch has a function of the same arguments for, which is quicker to call."""

COMPACT_RESULT = frozenset({aten.mm.default, aten.bmm.default, aten.addmm.default})
"""Call-outs whose result is known to lie as the fake tensor says."""


CallOuts = Mapping[str, tuple[Callable[..., Any], Mapping[str, int]]]
"""For a node a function of the values of `callout_inputs(node)`, and which overloads one call of it dispatches."""


def program(plan: Plan, built: Built, callouts: CallOuts, ledger: Ledger) -> CompiledGraph:
    """The compiled graph: the program's text, compiled, and what it calls."""
    return _Writer(plan, built, callouts, ledger).write()


class _Writer:
    def __init__(self, plan: Plan, built: Built, given: CallOuts, ledger: Ledger) -> None:
        self._plan = plan
        self._built = built
        self._given = given
        self._ledger = ledger
        self._nodes = {n.name: n for n in plan.graph.nodes}
        placeholders = [n for n in plan.graph.nodes if n.op == "placeholder"]
        self._tangents = {n for n, role in zip(placeholders, plan.graph.inputs) if role is Role.TANGENT}
        self._runs = [0]
        self._device = plan.graph.device
        empty = empty_strided if self._device.type == "cpu" else empty_strided_cuda
        self._scope: dict[str, Any] = {"empty": empty, "runs": self._runs}
        self._wide = {root_of(self._nodes[n]) for s in built.steps for n in s.get("wide", ()) if n in self._nodes}
        self._lines: list[str] = []
        self._known: set[str] = set()
        self._symbols: set[str] = set()
        self._conformed: set[str] = set()
        self._leaving = Counter(root_of(node) for node in tensor_outputs(plan.graph))
        self._callouts: list[CallOut] = []
        self._in_place: set[str] = set()
        self._written = {target: value for value, target in plan.graph.written if value is not target}
        self._kernel_calls = 0

    def write(self) -> CompiledGraph:
        self._open()
        for step in self._built.steps:
            if step.get("call") in self._plan.checks:
                self._check(step["call"])
            elif "call" in step:
                self._call_out(self._nodes[step["call"]])
            else:
                self._kernel(step)
        self._close()
        text = "\n".join(["def call(args):", *_released(self._lines, self._known)]) + "\n"
        exec(compile(text, f"<bridge {self._plan.graph.name} {self._plan.graph.phase.value}>", "exec"), self._scope)
        graph = self._plan.graph
        return CompiledGraph(
            graph=graph,
            placement=self._plan.ways,
            run=on_its_device(self._scope["call"], self._device),
            source=text,
            kernel_calls=self._kernel_calls,
            callouts=tuple(self._callouts),
            runs=self._runs,
            tuned=self._built.tuned,
        )

    # Parts of the text -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Take the inputs, and the symbolic sizes from them. What is written over is told to autograd at the end."""
        placeholders = [n for n in self._plan.graph.nodes if n.op == "placeholder"]
        names = [self._define(n.name) for n in placeholders]
        if names:
            self._line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = args")
        self._line("args.clear()")
        self._line("runs[0] += 1")
        for name, value in (*self._built.constants.items(), *self._plan.constants.items()):
            self._scope[self._define(name)] = value
            self._known.discard(identifier(name))
        sizes = [(identifier(n.name), n.meta["val"]) for n in placeholders]
        self._know_sizes(sizes)
        if any(told_together(sizes, self._symbols)):
            computed = (node for node in self._plan.graph.nodes if node.op != "placeholder")
            for symbol in told_together(sizes, self._symbols.union(*map(new_symbols_of, computed))):
                self._line(f"{symbol} = 0")
                self._symbols.add(symbol)
            self._know_sizes(sizes)
        read = {name for step in self._built.steps for name in step.get("inputs", ())}
        read -= {target.name for target in self._written}  # whoever calls sees to how these lie
        for node in placeholders:
            if node.name in read:
                self._conform(node, identifier(node.name), node.meta["val"])
            self._align(node)

    def _know_sizes(self, values: Sequence[tuple[str, Any]]) -> None:
        """The symbolic sizes by their names, where they are first known: of inputs, or of what depends on values."""
        for symbol, text in solved(values, self._symbols):
            if symbol != text:
                self._line(f"{symbol} = {text}")
            self._symbols.add(symbol)

    def _close(self) -> None:
        texts = [self._result(r) for r in self._plan.graph.returned]
        written = [self._replaced(value, target) for target, value in self._written.items()]
        for target in (target for target in self._written if target in self._wide):
            self._scope["copy_back"] = copied_back
            name = identifier(target.name)
            self._line(f"if {name} is not {name}_given:")
            self._line(f"    copy_back({name}_given, {name})")
        if written:
            self._scope["written"] = torch.autograd.graph.increment_version
            self._line(f"written(({', '.join(written)},))")
        self._line(f"return ({', '.join(texts)}{',' if len(texts) == 1 else ''})")

    def _replaced(self, value: Any, target: fx.Node) -> str:
        """An input that holds its new value: by the kernel that computed it, else by a copy, which is an event."""
        name = identifier(target.name)
        if value.name not in self._in_place:
            self._scope["copy_back"] = copied_back
            self._line(f"copy_back({name}, {self._reference(value)})")
            self._callouts.append(CallOut(value.name, Way.LIBRARY, {"aten.copy_.default": 1}, source_line(value)))
            self._ledger.record(copy_event(self._plan.graph, value, target))
        return f"{name}_given" if target in self._wide else name

    def _result(self, result: Any) -> str:
        if not isinstance(result, fx.Node):
            return repr(result)
        return self._size(result) if is_size(result) else self._reference(result)

    def _kernel(self, step: dict[str, Any]) -> None:
        outputs = step["outputs"]
        if any(size == "0" for size in outputs[0]["shape"]) and all(
            any(size == "0" for size in o["shape"]) for o in outputs
        ):
            for output in outputs:
                self._allocate(output)
            return
        inputs = [self._reached(name) for name in step["inputs"]]
        self._comment(step["nodes"])
        names = [self._replacing(output) if "into" in output else self._allocate(output) for output in outputs]
        self._scope[step["kernel"]] = self._built.kernel(step["kernel"])
        if step.get("by_address"):
            self._scope["address"] = torch.Tensor.data_ptr
            self._line(f"{step['kernel']}(*map(address, {tuple_of([*inputs, *names])}))")
        else:
            self._line(f"{step['kernel']}({', '.join([*inputs, *names, *step['sizes']])})")
        self._kernel_calls += 1

    def _replacing(self, output: dict[str, Any]) -> str:
        """The memory of an input, or of what nobody reads any more, as the new value."""
        held, shape, strides = self._value(output["into"]), tuple_of(output["shape"]), tuple_of(output["strides"])
        if output["into"] in self._plan.into.values():
            self._in_place.add(output["name"])
        name = self._define(output["name"])
        self._scope["reinterpret"] = reinterpret
        self._line(f"{name} = {held}" if output["alike"] else f"{name} = reinterpret({held}, {shape}, {strides}, 0)")
        return name

    def _allocate(self, output: dict[str, Any]) -> str:
        name = self._define(output["name"])
        dtype = f"torch_{output['dtype']}"
        self._scope[dtype] = torch_dtype(output["dtype"])
        self._line(f"{name} = empty({tuple_of(output['shape'])}, {tuple_of(output['strides'])}, {dtype})")
        return name

    def _call_out(self, node: fx.Node) -> None:
        function, counts = self._given[node.name]
        self._scope[f"call_{node.name}"] = self._quick(node, function)
        arguments = [self._argument(n) for n in callout_inputs(node)]
        self._comment([node.name])
        name = self._define(node.name)
        self._line(f"{name} = call_{node.name}({', '.join(arguments)})  # {op_name(node)}")
        value = node.meta.get("val")
        several = enumerate(value) if isinstance(value, tuple | list) else ()
        if node.target is aten.nonzero.default and symbols_in(value.shape[0]) <= self._symbols:  # type: ignore[union-attr]
            self._scope[f"count_{node.name}"] = counter(node)
            self._line(f"count_{node.name}({name}, {text_of(value.shape[0])})")  # type: ignore[union-attr]
        elif is_view(node) and new_symbols_of(node):
            self._scope[f"sized_{node.name}"] = sized(node)
            known = [f"{d}: {text_of(n)}" for d, n in enumerate(value.shape) if symbols_in(n) <= self._symbols]  # type: ignore[union-attr]
            self._line(f"sized_{node.name}({name}, {{{', '.join(known)}}})")
        self._know_sizes([(name, value), *((f"{name}[{n}]", one) for n, one in several)])
        if isinstance(value, torch.Tensor) and node.target not in COMPACT_RESULT:
            self._conform(node, name, value)
        self._align(node)
        for pick in node.users:
            if is_pick(pick) and pick.users:  # at once, since the tuple holds all of its tensors as long as it is there
                self._reference(pick)
        way = self._plan.ways[node.name]
        self._callouts.append(CallOut(node.name, way, counts, source_line(node)))

    def _check(self, name: str) -> None:
        """Raise where an index is out of bounds, or a divisor zero."""
        found, check = self._plan.checks[name]
        self._scope[name] = checker(check)
        self._line(f"{name}({identifier(found)})")

    def _quick(self, node: fx.Node, function: Callable[..., Any]) -> Callable[..., Any]:
        return DIRECT.get(node.target, function) if function is node.target else function  # type: ignore[arg-type]

    def _conform(self, node: fx.Node, name: str, value: torch.Tensor) -> None:
        """ATen may lay a result out otherwise than the fake tensor says, and whoever reads it counts on that."""
        if node.name in self._conformed or value.layout != torch.strided or node.name not in self._plan.strides:
            return
        self._conformed.add(node.name)
        self._write_out(node, name, value)
        strides = self._plan.strides[node.name]
        if strides:
            self._scope[f"lay_out_{node.name}"] = Copier(node, self._plan, self._ledger).lay_out
            self._line(f"if {name}.stride() != {tuple_of(strides)}:")
            self._line(f"    {name} = lay_out_{node.name}({name}, {tuple_of(strides)})")

    def _write_out(self, node: fx.Node, name: str, value: torch.Tensor) -> None:
        """A kernel reads memory as it is, and torch may negate it by a flag, or hold zeros without any."""
        if value.is_neg() or node in self._tangents:
            self._scope["write_out"] = written_out
            self._line(f"if {name}.is_neg() or {name}._is_zerotensor():")
            self._line(f"    {name} = write_out({name})")

    def _align(self, node: fx.Node) -> None:
        """Patches are read 16 bytes at once. torch's memory begins where they can be, but a tensor need not."""
        if node in self._wide:
            name = identifier(node.name)
            if node in self._written:
                self._line(f"{self._define(f'{node.name}_given')} = {name}")
            self._scope[f"align_{node.name}"] = Copier(node, self._plan, self._ledger).align
            self._line(f"if {name}.data_ptr() & {ALIGNED - 1}:")
            self._line(f"    {name} = align_{node.name}({name})")

    # Names -----------------------------------------------------------------------------------------------------------

    def _define(self, name: str) -> str:
        plain = identifier(name)
        self._known.add(plain)
        return plain

    def _value(self, name: str) -> str:
        """A value of the plan: a node's, or one that a row made on its way."""
        return self._reference(self._nodes[name]) if name in self._nodes else identifier(name)

    def _reached(self, name: str) -> str:
        """A value that a kernel reads, brought to the GPU if it is a number that lies on the CPU."""
        held, node = self._value(name), self._nodes.get(name)
        if node is None or node.meta["val"].device == self._device:
            return held
        brought = f"{held}_brought"
        if brought not in self._known:
            self._scope["device"] = self._device
            self._line(f"{self._define(brought)} = {held}.to(device, non_blocking=True)")
        return brought

    def _argument(self, node: fx.Node) -> str:
        return self._size(node) if is_size(node) else self._reference(node)

    def _size(self, node: fx.Node) -> str:
        return identifier(node.name) if identifier(node.name) in self._known else text_of(node.meta["val"])

    def _reference(self, node: fx.Node) -> str:
        """The name of a node's tensor, after a view of another one was taken where it is that."""
        name = identifier(node.name)
        if name in self._known or node.op == "get_attr" or node.name in self._built.constants:
            return name
        if not is_view(node):
            if is_pick(node):
                return self._picked(node)
            raise KeyError(f"{node.name} was never computed")
        return self._view(node)

    def _picked(self, node: fx.Node) -> str:
        """A result of a call-out that has several."""
        source, position = node.args
        held = self._reference(source)  # type: ignore[arg-type]
        name = self._define(node.name)
        self._line(f"{name} = {held}[{position}]")
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and not is_view(node):
            self._conform(node, name, value)
        self._align(node)
        return name

    def _view(self, node: fx.Node) -> str:
        root = root_of(node)
        if not shows(node, root) or not self._plan.strides.get(root.name):
            return self._picked(node) if is_pick(node) else self._called_view(node)
        if root.op == "placeholder":
            self._conform(root, identifier(root.name), root.meta["val"])
        held = self._reference(root)
        name = self._define(node.name)
        if lies_alike(node, root) and self._can_stand_for(node, root):
            self._line(f"{name} = {held}  # {op_name(node)}")
            return name
        view, whole = node.meta["val"], root.meta["val"]
        self._scope["reinterpret"] = reinterpret
        shape, strides = (tuple_of([text_of(n) for n in ns]) for ns in (view.shape, view.stride()))
        offset = text_of(view.storage_offset() - whole.storage_offset())
        self._line(f"{name} = reinterpret({held}, {shape}, {strides}, {offset})  # {op_name(node)}")
        return name

    def _called_view(self, node: fx.Node) -> str:
        function, _ = callout(node)
        self._scope[f"call_{node.name}"] = function
        arguments = [self._argument(n) for n in callout_inputs(node)]
        name = self._define(node.name)
        self._line(f"{name} = call_{node.name}({', '.join(arguments)})  # {op_name(node)}{list(node.args[1:])}")
        return name

    def _can_stand_for(self, node: fx.Node, root: fx.Node) -> bool:
        """Whether the root can be given where the view is asked for. What leaves the graph is a tensor of its own."""
        if all(user.op != "output" for user in node.users):
            return True
        return root.op != "placeholder" and self._leaving[root] == 1

    # Lines -----------------------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append(f"    {text}")

    def _comment(self, names: Sequence[str]) -> None:
        """Which nodes a step stands for, and the user's lines behind them."""
        nodes = [self._nodes[n] for n in names if n in self._nodes]
        lines = list(dict.fromkeys(line for n in nodes if (line := source_line(n))))
        shown = ", ".join(n.name for n in nodes) or ", ".join(names)
        self._lines.append(f"    # {shown}" + (f"  <- {'; '.join(lines)}" if lines else ""))


def is_pick(node: fx.Node) -> bool:
    """Whether a node picks one of several results."""
    return getattr(node.target, "__name__", "") == "getitem" and getattr(node.target, "__module__", "") == "_operator"


RESERVED = frozenset({
    "address", "args", "call", "copy_back", "device", "empty", "reinterpret", "runs", "write_out", "written",
})  # fmt: skip
"""Names that a program has for itself."""


def identifier(name: str) -> str:
    """A name as Python allows it, and as the program does not use it for itself."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if plain in RESERVED else plain


def tuple_of(texts: Sequence[str]) -> str:
    """A tuple of sizes as text."""
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _released(lines: Sequence[str], names: set[str]) -> list[str]:
    """The lines, with each name let go of after the last line that has it."""
    last: dict[str, int] = {}
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("#"):
            for word in re.findall(r"[A-Za-z_]\w*", line.split("  #")[0]):
                if word in names:
                    last[word] = number
    result: list[str] = []
    for number, line in enumerate(lines):
        result.append(line)
        gone = sorted(name for name, at in last.items() if at == number)
        if gone and number < len(lines) - 1 and not line.rstrip().endswith(":"):
            result.append(f"    del {', '.join(gone)}")
    return result
