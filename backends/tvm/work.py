"""The worker's side of a build: passes, grouping, schedules and code generation, where a crash costs nobody anything.

Runs as a process of its own, without torch. A request names a Relax module in a file; the answer is the plan of the
program and the library of its kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.runtime.worker import block_import, serve

if __name__ == "__main__":
    block_import("torch")

import numpy
import tvm
import tvm_ffi
from tvm import relax

from bridge.backends.tvm.codegen import compiled
from bridge.backends.tvm.fuse import fuse
from bridge.backends.tvm.index import Index, Size
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Call, Loops, Opaque, Value
from bridge.backends.tvm.read import Reader
from bridge.backends.tvm.schedule.cpu import scheduled
from bridge.backends.tvm.schedule.opaque import scheduled_opaque


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Build one program. With "careful", kernels are built one by one, and the one in hand is named in a file."""
    folder = Path(request["folder"])
    progress = _Progress(folder / "progress", request["careful"])
    module = tvm.ir.load_json(Path(request["module"]).read_text())
    loops = Reader(
        legalised(module, request["owners"], progress),
        request["names"],
        request["owners"],
        {name: [_index(s) for s in strides] for name, strides in request["strides"].items() if strides},
        request["views"],
    ).read()
    plan = fuse(loops, frozenset(request["apart"]))
    functions: dict[str, Kernelled] = {}
    steps = [_step(item, number, functions, progress) for number, item in enumerate(plan.items)]
    target = tvm.target.Target(request["target"])
    library = _library(functions, target, folder, progress)
    return {"library": library, "steps": steps, "constants": _constants(loops, folder)}


class _Progress:
    """Which nodes are being worked on, in a file, so that the parent knows what killed the worker."""

    def __init__(self, path: Path, careful: bool) -> None:
        self._path = path
        self.careful = careful

    def on(self, nodes: Sequence[str]) -> None:
        if self.careful:
            self._path.write_text("\n".join(nodes))


def legalised(module: Any, owners: Mapping[str, str], progress: _Progress) -> Any:
    """Every Relax op as loops. Carefully: one binding at a time before the whole."""
    if progress.careful:
        bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
        owner, owned = "", []
        for binding in reversed(bindings):
            owner = owners.get(binding.var.name, owner)
            owned.append((owner, binding))
        for owner, binding in reversed(owned):
            if isinstance(binding.value, tvm.ir.Call):
                progress.on([owner])
                relax.transform.LegalizeOps()(_alone(binding))
    return relax.transform.LegalizeOps()(module)


def _alone(binding: Any) -> Any:
    """A module that holds one binding only."""
    used = relax.analysis.free_vars(binding.value)
    builder = relax.BlockBuilder()
    with builder.function("main", list(used)):
        builder.emit_func_output(builder.emit(binding.value))
    return builder.get()


def _step(
    item: Kernel | Opaque | Call, number: int, functions: dict[str, Kernelled], progress: _Progress
) -> dict[str, Any]:
    """One step of the program as the parent reads it; the kernel that it needs goes into `functions`."""
    if isinstance(item, Call):
        return {"call": item.name}
    nodes = list(dict.fromkeys(n for m in item.members for n in m.nodes) if isinstance(item, Kernel) else item.nodes)
    progress.on(nodes)
    if isinstance(item, Kernel):
        function, inputs, outputs, sizes = scheduled(item, "kernel")
    else:
        function, inputs, outputs = scheduled_opaque(item.function), list(item.inputs), list(item.outputs)
        sizes = [_text(s) for s in item.sizes]
    name = _entered(Kernelled(function, nodes), _named(nodes, number), functions)
    return {
        "kernel": name,
        "inputs": [v.name for v in inputs],
        "outputs": [_described(v) for v in outputs],
        "sizes": sizes,
        "nodes": nodes,
    }


def _named(nodes: Sequence[str], number: int) -> str:
    words = [n.rstrip("0123456789").rstrip("_") for n in nodes if not n.startswith("lv")]
    return "_".join([f"k{number}", *list(dict.fromkeys(words))[-3:]])


@dataclass
class Kernelled:
    """A kernel's PrimFunc, and the nodes that it is part of."""

    function: Any
    nodes: list[str]


def _entered(kernel: Kernelled, name: str, functions: dict[str, Kernelled]) -> str:
    """Kernels that differ in name only are one kernel."""
    for known, other in functions.items():
        if tvm_ffi.structural_equal(other.function, kernel.function, map_free_vars=True):
            other.nodes.extend(kernel.nodes)
            return known
    functions[name] = kernel
    return name


def _library(functions: Mapping[str, Kernelled], target: Any, folder: Path, progress: _Progress) -> str | None:
    """The kernels as one shared library, or None where there are none."""
    if not functions:
        return None
    named = {name: k.function for name, k in functions.items()}
    if progress.careful:
        for name, function in named.items():
            progress.on(functions[name].nodes)
            compiled({name: function}, target)
    path = folder / "kernels.so"
    compiled(named, target).export_library(str(path))
    return str(path)


def _constants(loops: Loops, folder: Path) -> dict[str, str]:
    paths: dict[str, str] = {}
    for value, array in loops.constants.items():
        path = folder / f"{value.name}.npy"
        numpy.save(path, array)
        paths[value.name] = str(path)
    return paths


def _described(value: Value) -> dict[str, Any]:
    shape, strides = [_text(s) for s in value.shape], [_text(s) for s in value.strides]
    return {"name": value.name, "shape": shape, "strides": strides, "dtype": value.dtype}


def _index(text: str) -> Index:
    """A size from its Python text."""
    names = {name: Index.of(Size(name)) for name in compile(text, "<size>", "eval").co_names}
    return Index.of(eval(text, {"__builtins__": {}}, names))


def _text(index: Index) -> str:
    """A size as Python text."""
    terms = []
    for monomial, factor in index.terms.items():
        parts = [str(factor)] if factor != 1 or not monomial else []
        for atom in monomial:
            if isinstance(atom, Size):
                parts.append(atom.name)
            else:
                sign = "//" if type(atom).__name__ == "Quotient" else "%"
                parts.append(f"(({_text(atom.value)}) {sign} ({_text(atom.by)}))")  # type: ignore[union-attr]
        terms.append("*".join(parts))
    return " + ".join(terms) or "0"


if __name__ == "__main__":
    sys.setrecursionlimit(20000)
    serve(handle)
