"""Is everything here that the bridge stands on, and does a kernel compile and run?"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from time import perf_counter

from bridge.versions import PACKAGES, findings, installed


@dataclass(frozen=True)
class Check:
    """One thing looked at. detail: what was found, or what to do about it."""

    name: str
    ok: bool
    detail: str


def examine() -> list[Check]:
    """Look at the versions and the compiler, and, if nothing is wrong with them, at a kernel."""
    checks = [Check("Python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")]
    checks += versions()
    checks.append(compiler())
    if all(check.ok for check in checks):
        checks.append(kernel())
    return checks


def versions() -> list[Check]:
    """Every package that the bridge knows, with what is wrong with it."""
    wrong = {problem.package: problem.detail for problem in findings()}
    checks = []
    for name, package in PACKAGES.items():
        version = installed(name)
        found = f"{version} (supported: {package.range})" if version else "not installed, and not needed"
        checks.append(Check(package.name, package.name not in wrong, wrong.get(package.name, found)))
    return checks


def compiler() -> Check:
    """The C++ compiler by which TVM links its kernels."""
    name = os.environ.get("CXX", "c++")
    path = shutil.which(name)
    return Check("C++ compiler", path is not None, path or f"there is no {name}: install g++, or set CXX")


def kernel() -> Check:
    """Compile a function and its gradient, run both, and compare them with eager."""
    import torch

    import bridge

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.tanh() * 2).sum()

    x = torch.linspace(-1, 1, 50, requires_grad=True)
    start = perf_counter()
    compiled = bridge.compile(function)
    (found,) = torch.autograd.grad(compiled(x), x)
    seconds = perf_counter() - start
    (expected,) = torch.autograd.grad(function(x), x)
    calls = sum(graph.kernel_calls * graph.runs[0] for graph in bridge.inspect(compiled).graphs)
    if not calls:
        reasons = "; ".join(event.detail for event in bridge.inspect(compiled).ledger)
        return Check("kernel", False, f"none was compiled: {reasons or 'the ledger does not say why'}")
    if not torch.allclose(found, expected):
        return Check("kernel", False, "a gradient is wrong; please report it with this page")
    return Check("kernel", True, f"compiled and run, forward and backward, in {seconds:.1f} s")
