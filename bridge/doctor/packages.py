"""The versions of Python and of the packages, against those that the bridge supports."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from bridge.doctor.check import Check, State
from bridge.versions import PACKAGES, findings, installed

GROUP = "packages"


def packages() -> Iterator[Check]:
    """Python, and every package that the bridge knows."""
    import bridge

    told = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Check(GROUP, "Python", State.OK, told)
    yield Check(GROUP, "torch-tvm-bridge", State.OK, f"{bridge.__version__} in {bridge.__path__[0]}")
    wrong = {problem.package: problem.detail for problem in findings()}
    for name, package in PACKAGES.items():
        version = installed(name)
        if package.name in wrong:
            detail, _, remedy = wrong[package.name].partition(": ")
            yield Check(GROUP, package.name, State.WRONG, detail, remedy)
        elif version is None:
            yield Check(GROUP, package.name, State.OK, "not installed, and not needed")
        else:
            yield Check(GROUP, package.name, State.OK, f"{version} (supported: {package.range})")
