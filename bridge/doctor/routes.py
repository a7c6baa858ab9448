"""Each way of running, tried in a process of its own: a broken package may end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bridge.doctor.check import Check, State
from bridge.doctor.machine import COMPILER

LIMIT = 300.0
"""Seconds that a way may take; a slow machine builds a kernel in ten."""

NEEDS = {
    "torch": ("torch",),
    "tvm": ("apache-tvm", "apache-tvm-ffi"),
    "capture": ("torch",),
    "threads": ("torch", "apache-tvm", "apache-tvm-ffi"),
    "kernel": ("torch", "apache-tvm", "apache-tvm-ffi", COMPILER),
    "inductor": ("torch", COMPILER),
    "CUDA": ("torch",),
}
"""The ways, and which checks have to be right for one to be tried. `tried.py` has a function for each."""


def routes(broken: set[str]) -> Iterator[Check]:
    """Try each way whose needs are met, and those that it stands on worked."""
    broken = set(broken)
    for name, needs in NEEDS.items():
        lacking = [need for need in needs if need in broken]
        if lacking:
            yield Check("routes", name, State.NOTE, f"not tried: {', '.join(lacking)} is wrong")
            continue
        check = tried(name)
        if check.state is State.WRONG:
            broken |= {"torch": {"torch"}, "tvm": {"apache-tvm"}}.get(name, set())
        yield check


def tried(name: str) -> Check:
    """Run `python -m bridge.doctor.tried NAME`, and tell how it ended."""
    command = [sys.executable, "-P", "-m", "bridge.doctor.tried", name]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as kept:
        environment = {**os.environ, "PYTHONPATH": path, "BRIDGE_CACHE_DIR": kept, "TORCHINDUCTOR_CACHE_DIR": kept}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return Check("routes", name, State.WRONG, f"it did not end within {LIMIT:.0f} s", _remedy(name))
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        said = json.loads(lines[-1])
        return Check("routes", name, State(said["state"]), said["detail"], said["remedy"])
    return Check("routes", name, State.WRONG, ended(done), _remedy(name))


def ended(done: subprocess.CompletedProcess[str]) -> str:
    """How a process ended, and the last line that it said."""
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
    said = (done.stderr.strip().splitlines() or [""])[-1]
    return f"it ended with {how}" + (f": {said}" if said else "")


def _remedy(name: str) -> str:
    return {
        "torch": "install torch anew: it cannot be imported",
        "tvm": "install apache-tvm and apache-tvm-ffi anew, in the versions that `packages` names",
        "inductor": 'do without fallback=["inductor"] and target="inductor"',
    }.get(name, "see the lines above; if they are right, please report it with the output of bridge doctor --json")
