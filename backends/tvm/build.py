"""Have the worker build a lowered graph: module in, plan and library of kernels out."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
import tvm
from tvm.target import codegen

from bridge.backends.tvm.lower import Lowered
from bridge.errors import WorkerFailure
from bridge.options import Options
from bridge.runtime.worker import shared

WORKER = "bridge.backends.tvm.work"
"""The module that runs in the worker."""


class BuildFailed(Exception):
    """The worker died of a program, hung on it, or TVM refused it.

    groups: nodes that failed together, with what was said of it, as far as is known.
    """

    def __init__(self, kind: str, detail: str, groups: Sequence[tuple[tuple[str, ...], str]] = ()) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.groups = kind, detail, tuple(groups)


@dataclass(frozen=True)
class Built:
    """What the worker made of a lowered graph.

    steps: the program in order: {"call": node} or {"kernel": name, "inputs", "outputs", "sizes", "nodes"}.
    kernel: a compiled kernel by name. constants: tensors that kernels read beside the graph's own.
    """

    steps: tuple[dict[str, Any], ...]
    kernel: Callable[[str], Any]
    constants: Mapping[str, torch.Tensor]


def build(lowered: Lowered, options: Options, apart: Collection[str], careful: bool = False) -> Built:
    """Build a program. Nodes in `apart` get a kernel each; `careful` finds out what a failure is due to.

    Raises BuildFailed.
    """
    folder = Path(tempfile.mkdtemp(dir=_scratch()))
    module = folder / "module.json"
    module.write_text(tvm.ir.save_json(lowered.module))
    request = {
        "module": str(module),
        "names": dict(lowered.names),
        "owners": dict(lowered.owners),
        "strides": {name: list(strides) for name, strides in lowered.strides.items()},
        "views": dict(lowered.views),
        "target": tvm_target(options.target),
        "apart": sorted(apart),
        "folder": str(folder),
        "careful": careful,
    }
    try:
        answer = shared(WORKER).call(request, options.timeout)
    except WorkerFailure as failure:
        progress = folder / "progress"
        nodes = tuple(progress.read_text().split("\n")) if progress.exists() else ()
        raise BuildFailed(failure.kind, failure.detail, [(nodes, failure.detail)] if nodes else []) from failure
    if "failed" in answer:
        groups = [(tuple(f["nodes"]), f["detail"]) for f in answer["failed"]]
        raise BuildFailed("error", groups[0][1], groups)
    library: Any = tvm.runtime.load_module(answer["library"]) if answer["library"] else None
    constants = {name: _loaded(path) for name, path in answer["constants"].items()}
    shutil.rmtree(folder)
    return Built(tuple(answer["steps"]), lambda name: library[name], constants)


def tvm_target(target: str | Mapping[str, Any]) -> Any:
    """TVM's description of the hardware: the host's processor for "tvm", else what the user gave."""
    if target == "tvm":
        return {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()}
    return dict(target) if isinstance(target, Mapping) else target


def _loaded(path: str) -> torch.Tensor:
    return torch.from_numpy(numpy.load(path))


@functools.cache
def _scratch() -> str:
    """A folder for what passes between this process and its workers, gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="bridge-")
    weakref.finalize(shared, shutil.rmtree, folder, ignore_errors=True)
    return folder
