"""Builds programs as for a GPU, and lets their kernels run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy
import torch
import tvm

from bridge import generation
from bridge.backends.tvm import work
from bridge.backends.tvm.build import Built, requested
from bridge.backends.tvm.kept import Entry
from bridge.backends.tvm.lowered import Lowered
from bridge.options import Options
from tests.backends.tvm import simt

H200 = {"kind": "cuda", "arch": "sm_90"}

Functions = dict[str, Any]


@contextmanager
def emulated() -> Iterator[list[Functions]]:
    """Inside, programs have the kernels of a GPU, which run on the CPU. The kernels of each program by name."""
    programs: list[Functions] = []

    def build(
        lowered: Lowered, options: Options, apart: Collection[str], careful: bool = False, entry: Entry | None = None
    ) -> Built:
        programs.append({})
        return built(lowered, apart, programs[-1])

    with mock.patch.object(generation, "build", build):
        yield programs


def built(lowered: Lowered, apart: Collection[str], functions: Functions) -> Built:
    """What the worker would make of a graph for a GPU. Its kernels go into `functions`."""

    def keep(made: Functions, target: Any, folder: Path) -> bool:
        functions.update(made)
        return bool(made)

    with TemporaryDirectory() as folder, mock.patch.object(work, "write_library", keep):
        module = Path(folder) / "module.json"
        request = requested(lowered, H200, apart)
        module.write_text(request["module"])
        request |= {"module": str(module), "folder": folder, "careful": False}
        answer = work.handle(request)
        constants = {n: torch.from_numpy(numpy.load(Path(folder) / f"{n}.npy")) for n in answer["constants"]}
    return Built(tuple(answer["steps"]), lambda name: _running(functions[name]), constants)


def _running(function: Any) -> Callable[..., None]:
    tensors = sum(1 for p in function.params if not isinstance(p.ty, tvm.ir.PrimType))
    return lambda *given: simt.run(function, given[:tensors], given[tensors:])
