"""Load TVM in two parts: what a build on a CPU needs, and the rest while this process waits for the worker.

To import TVM whole takes seconds beside torch. Most of that is errors in C++ which TVM swallows while it looks for what
is not there: the first one reads the symbols of every library in the process. So nothing that fails is asked for.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SWITCH = "TVM_DEVICE_BACKEND_AUTOLOAD"
"""The variable by which TVM is told not to load what it has for other devices than CPUs."""

_DISCO = "tvm.runtime.disco"
"""TVM's runtime for several processes. Its C++ part is in no wheel, and TVM does without it where it is missing."""

_LOCK = threading.Lock()
_left: list[str] = []


def load_core() -> None:
    """Import TVM without its parts for other devices, unless it is there already."""
    with _LOCK:
        if "tvm" in sys.modules or _SWITCH in os.environ:
            return
        sys.modules[_DISCO] = None  # type: ignore[assignment]
        os.environ[_SWITCH] = "0"
        try:
            importlib.import_module("tvm")
            _left.append("tvm")
        except ImportError:
            return  # told by whoever imports a name of it
        finally:
            del os.environ[_SWITCH], sys.modules[_DISCO]


def load_rest() -> None:
    """Load what `load_core` left out, so that TVM is as whoever imports it expects it."""
    with _LOCK:
        if not _left:
            return
        _left.clear()
        import tvm_ffi
        from tvm.backend import _autoload_backends as loader

        if tvm_ffi.get_global_func("runtime.disco.SessionThreaded", allow_missing=True) is not None:
            runtime: Any = importlib.import_module("tvm.runtime")
            runtime.disco = importlib.import_module(_DISCO)
        loader._AUTO_LOAD_DONE = False
        with _without_errors():
            loader._autoload_backends()


@contextmanager
def _without_errors() -> Iterator[None]:
    """While TVM names its operators for printing: what is unknown, or named already, fails before it comes to C++."""
    from tvm.ir import Op

    op: Any = Op
    from tvm.tirx.script.builder import ir as builder

    known, get, register = frozenset(op.list_op_names()), op.get, builder._register_op_attr

    def get_known(name: str) -> Any:
        if name not in known:
            raise AttributeError(name)
        return get(name)

    def register_new(name: str, key: str, value: Any, level: int) -> None:
        found = get(name)
        if not found.has_attr(key) or found.get_attr(key) != value:
            register(name, key, value, level)

    op.get, builder._register_op_attr = staticmethod(get_known), register_new
    try:
        yield
    finally:
        op.get, builder._register_op_attr = staticmethod(get), register
