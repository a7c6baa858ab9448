"""What of the machine the bridge uses: the C++ compiler that links kernels, and the folder that keeps them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bridge.doctor.check import Check, State

GROUP = "machine"
COMPILER = "C++ compiler"
PROGRAM = 'extern "C" int answer() { return 42; }\n'


def machine() -> Iterator[Check]:
    """The compiler and the cache."""
    yield compiler()
    yield cache()


def compiler() -> Check:
    """The C++ compiler links a shared library, as TVM has it do with kernels."""
    name = os.environ.get("CXX", "c++")
    path = shutil.which(name)
    if path is None:
        return Check(GROUP, COMPILER, State.WRONG, f"there is no {name}", "install g++, or set CXX")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "answer.cc", Path(folder) / "answer.so"
        source.write_text(PROGRAM)
        done = _run([path, "-shared", "-fPIC", "-o", str(library), str(source)])
        if done.returncode != 0 or not library.exists():
            detail = f"{path} links no shared library: {_last_line(done.stderr)}"
            return Check(GROUP, COMPILER, State.WRONG, detail, "install g++ with its libraries, or set CXX to another")
    return Check(GROUP, COMPILER, State.OK, f"{path}: {(_run([path, '--version']).stdout.splitlines() or ['?'])[0]}")


def cache() -> Check:
    """The folder of built programs can be written; without, they are built anew in every process."""
    from bridge.runtime.cache import users_cache

    root = users_cache().root
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        remedy = "set BRIDGE_CACHE_DIR to a folder that can be written; without one, every process builds anew"
        return Check(GROUP, "cache", State.WRONG, f"{root} cannot be written: {error.strerror}", remedy)
    return Check(GROUP, "cache", State.OK, f"{root} can be written")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it does not say why"])[-1]
