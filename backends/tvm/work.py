"""The worker's side of a build: passes, grouping, schedules and code generation, where a crash costs nobody anything.

Runs as a process of its own, without torch. A request names a Relax module in a file; the answer is the plan of the
program and the library of its kernels.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.backends.tvm.loading import load_core, load_rest
from bridge.runtime.worker import block_import, serve

if __name__ == "__main__":
    gc.disable()  # what is imported stays
    block_import("torch")
    load_core()

import numpy
import tvm
import tvm_ffi
from tvm import relax
from tvm_ffi.serialization import from_json_graph_str

from bridge.backends.tvm.bundle import Bundle
from bridge.backends.tvm.codegen import compiled
from bridge.backends.tvm.fuse import Plan, fuse
from bridge.backends.tvm.inplace import Item
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Call, Loops, Value
from bridge.backends.tvm.read import Reader
from bridge.backends.tvm.schedule import cpu, cuda, together
from bridge.backends.tvm.schedule.alike import Alike
from bridge.backends.tvm.schedule.nest import Nest
from bridge.backends.tvm.schedule.opaque import scheduled_opaque
from bridge.backends.tvm.schedule.parameters import Scheduled
from bridge.backends.tvm.sizes import index_of, text_of


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Build one program.

    With "careful", nodes and kernels are tried one by one, and what is in hand is named in a file. The answer then
    holds the groups of nodes that failed, if any did. Kernels and constants are written into the request's folder.
    """
    if not _is_for_a_cpu(request["target"]):
        load_rest()
    folder = Path(request["folder"])
    trial = Trial(folder / "progress") if request["careful"] else None
    module = from_json_graph_str(Path(request["module"]).read_text())  # load_json would first look for old forms
    if trial is not None:
        try_ops(module, request["owners"], trial)
        if trial.failed:
            return {"failed": trial.failed}
    hardware = Hardware(tvm.target.Target(request["target"]), frozenset(request["unaligned"]))
    plan = planned(request, module, hardware)
    if trial is not None:
        try_kernels(plan.items, hardware, trial)
        if trial.failed:
            return {"failed": trial.failed}
    functions = Functions()
    alike = Alike(item for item in plan.items if isinstance(item, Kernel) and not hardware.is_gpu)
    searched = request["fresh"] is None  # for better schedules, of which sizes that are no numbers have none
    steps = [step_of(item, n, hardware, functions, None if searched else alike) for n, item in enumerate(plan.items)]
    has_library = write_library(functions, hardware.target, folder)
    return {"library": has_library, "steps": steps, "constants": _constants(plan.loops, folder)}


def _is_for_a_cpu(target: str | Mapping[str, Any]) -> bool:
    """Whether a target is known to need no more of TVM than its core. A name may stand for anything."""
    return isinstance(target, Mapping) and target["kind"] == "llvm"


def planned(request: Mapping[str, Any], module: Any, hardware: Hardware) -> Plan:
    """The program as kernels and calls."""
    loops = Reader(
        relax.transform.LegalizeOps()(module),
        request["names"],
        request["owners"],
        {name: [index_of(s) for s in strides] for name, strides in request["strides"].items() if strides},
        request["views"],
        request["into"],
    ).read()
    return fuse(loops, frozenset(request["apart"]), hardware.is_gpu, request["fresh"], request["released"])


@dataclass(frozen=True)
class Hardware:
    """What kernels are made for. unaligned: names of the values that need not begin where a GPU would like."""

    target: Any
    unaligned: frozenset[str]

    @property
    def is_gpu(self) -> bool:
        return self.target.kind.name == "cuda"


class Trial:
    """Tries parts of a program one by one. What is in hand stands in a file, for the case that it ends the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.failed: list[dict[str, Any]] = []

    def run(self, nodes: Sequence[str], attempt: Callable[[], object]) -> None:
        self._path.write_text("\n".join(nodes))
        try:
            attempt()
        except Exception as failure:
            self.failed.append({"nodes": list(nodes), "detail": f"{type(failure).__name__}: {failure}"})


def try_ops(module: Any, owners: Mapping[str, str], trial: Trial) -> None:
    """Legalise one binding at a time. A binding belongs to the next variable that a node has."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    owner, owned = "", []
    for binding in reversed(bindings):
        owner = owners.get(binding.var.name, owner)
        owned.append((owner, binding))
    for owner, binding in reversed(owned):
        if isinstance(binding.value, tvm.ir.Call):
            trial.run([owner], lambda binding=binding: relax.transform.LegalizeOps()(_alone(binding)))


def try_kernels(items: Sequence[Item | Bundle], hardware: Hardware, trial: Trial) -> None:
    """Schedule and build one kernel at a time."""
    for number, item in enumerate(items):
        if not isinstance(item, Call):
            trial.run(item.nodes, lambda item=item, number=number: _build_one(item, number, hardware))


def _build_one(item: Item | Bundle, number: int, hardware: Hardware) -> None:
    functions = Functions()
    step_of(item, number, hardware, functions)
    compiled(functions, hardware.target)


def _alone(binding: Any) -> Any:
    """A module that holds one binding only."""
    used = relax.analysis.free_vars(binding.value)
    builder = relax.BlockBuilder()
    with builder.function("main", list(used)):
        builder.emit_func_output(builder.emit(binding.value))
    return builder.get()


class Functions(dict[str, Any]):
    """Kernels by name. Those that differ in name only are one."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, list[str]] = {}

    def enter(self, function: Any, name: str) -> str:
        """The name by which the kernel is known from here on."""
        like = self._names.setdefault(tvm_ffi.structural_hash(function, map_free_vars=True), [])
        for known in like:
            if tvm_ffi.structural_equal(self[known], function, map_free_vars=True):
                return known
        like.append(name)
        self[name] = function
        return name


def step_of(
    item: Item | Bundle, number: int, hardware: Hardware, functions: Functions, alike: Alike | None = None
) -> dict[str, Any]:
    """One step of the program as the parent reads it; the kernel that it needs goes into `functions`.

    alike: what schedules kernels that do the same once.
    """
    if isinstance(item, Call):
        return {"call": item.name}
    nodes = list(dict.fromkeys(item.nodes))
    into: dict[Value, Value] = {}
    if isinstance(item, Bundle):
        into, made = item.into, together.scheduled(item, "kernel")
    elif isinstance(item, Kernel):
        into = item.into
        if hardware.is_gpu:
            made = cuda.scheduled(item, "kernel", hardware.unaligned)
        else:
            made = alike.scheduled(item, _on_a_cpu) if alike else _on_a_cpu(item, None)
    elif hardware.is_gpu:
        raise ValueError(f"{item.name} is written as loops, one after the other, which a GPU does not run")
    else:
        made = scheduled_opaque(item)
    return {
        "kernel": functions.enter(made.function, _named(nodes, number)),
        "inputs": [v.name for v in made.inputs],
        "outputs": [_described(v, into.get(v)) for v in made.outputs],
        "sizes": list(made.sizes),
        "wide": [v.name for v in made.wide],
        "by_address": made.by_address,
        "nodes": nodes,
    }


def _named(nodes: Sequence[str], number: int) -> str:
    words = [n.rstrip("0123456789").rstrip("_") for n in nodes if not n.startswith("lv")]
    return "_".join([f"k{number}", *list(dict.fromkeys(words))[-3:]])


def _on_a_cpu(kernel: Kernel, nest: Nest | None) -> Scheduled:
    return cpu.scheduled(kernel, "kernel", nest=nest)


def write_library(functions: dict[str, Any], target: Any, folder: Path) -> bool:
    """Write the kernels as one shared library into the folder, if there are any."""
    if functions:
        compiled(functions, target).export_library(str(folder / "kernels.so"))
    return bool(functions)


def _constants(loops: Loops, folder: Path) -> list[str]:
    """Write each constant into the folder. Returns their names."""
    for value, array in loops.constants.items():
        numpy.save(folder / f"{value.name}.npy", array)
    return [value.name for value in loops.constants]


def _described(value: Value, target: Value | None) -> dict[str, Any]:
    shape, strides = [text_of(s) for s in value.shape], [text_of(s) for s in value.strides]
    described = {"name": value.name, "shape": shape, "strides": strides, "dtype": value.dtype}
    if target is None:
        return described
    shown = (target.shape, target.strides) == (value.shape, value.strides)
    return {**described, "into": target.name, "alike": shown}


if __name__ == "__main__":
    sys.setrecursionlimit(20000)
    gc.freeze()
    gc.enable()
    serve(handle)
