"""The kernels of a program, once they are built: loaded without the compiler, which a find in the cache can spare."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
import tvm_ffi

from bridge.ir.compiled import Tuned
from bridge.runtime.worker import shared

WORKER = "bridge.backends.tvm.work"
"""The module that runs in the worker, and makes kernels."""

ALIGNED = 16
"""Bytes on which memory has to begin that a GPU moves in patches. torch's own begins on 512."""

ANSWER = "answer.json"
"""Where the worker's answer is kept beside its files."""


@dataclass(frozen=True)
class Built:
    """What the worker made of a lowered graph.

    steps: the program in order: {"call": node} or {"kernel": name, "inputs", "outputs", "sizes", "nodes"}. An output
        with "into" is written into the memory of that value, which then is not among the step's own inputs. A kernel
        with "by_address" takes the addresses of tensors.
    kernel: a compiled kernel by name. constants: tensors that kernels read beside the graph's own. tuned: what a search
    for better kernels came to. untuned: why one that was asked for failed, or was not made.
    """

    steps: tuple[dict[str, Any], ...]
    kernel: Callable[[str], Any]
    constants: Mapping[str, torch.Tensor]
    tuned: tuple[Tuned, ...] = ()
    untuned: str = ""


def loaded(folder: Path, device: torch.device) -> Built:
    """What the worker left in a folder."""
    answer = json.loads((folder / ANSWER).read_text())
    library: Any = load_library(folder / "kernels.so", device) if answer["library"] else None
    constants = {n: torch.from_numpy(numpy.load(folder / f"{n}.npy")).to(device) for n in answer["constants"]}
    tuned = tuple(Tuned(**{**one, **_as_tuples(one)}) for one in answer.get("tuned", ()))
    return Built(tuple(answer["steps"]), lambda name: library[name], constants, tuned, answer.get("untuned", ""))


def _as_tuples(told: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What JSON has as lists."""
    return {name: tuple(value) for name, value in told.items() if isinstance(value, list)}


def load_library(path: Path, device: torch.device) -> Any:
    """A shared library of TVM's. What runs on a CPU needs TVM's small runtime alone; to import TVM takes seconds."""
    if device.type != "cpu" or not _has_runtime():
        import tvm

        return tvm.runtime.load_module(str(path))
    return tvm_ffi.load_module(str(path))


@functools.cache
def _has_runtime() -> bool:
    """Whether TVM's runtime could be loaded by itself, from where its package lies."""
    found = importlib.util.find_spec("tvm")
    folder = Path(found.origin or "").parent / "lib" if found else Path()
    try:
        ctypes.CDLL(str(folder / "libtvm_runtime.so"), ctypes.RTLD_GLOBAL)  # as TVM itself loads it
    except OSError:
        return False
    return True


@functools.cache
def scratch() -> str:
    """A folder for what passes between this process and its workers, gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="bridge-")
    weakref.finalize(shared, shutil.rmtree, folder, ignore_errors=True)
    return folder
