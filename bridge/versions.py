"""Which versions of what it stands on the bridge supports, and what is wrong with those that are installed.

What is found here is recorded elsewhere: this module knows no ledger, and imports nothing that it speaks of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple


@dataclass(frozen=True)
class Package:
    """A package with its supported versions: `low` up to, but without, `high`.

    optional: it may be absent. fatal: nothing can run with another version. consequence: what another version means.
    """

    name: str
    low: str
    high: str
    optional: bool = False
    fatal: bool = False
    consequence: str = "which the bridge was not tested with"

    @property
    def range(self) -> str:
        """The supported versions as pip writes them."""
        return f">={self.low},<{self.high}"


PACKAGES: dict[str, Package] = {
    "torch": Package("torch", "2.11", "2.16"),
    "tvm": Package("apache-tvm", "0.27", "0.28"),
    "tvm_ffi": Package(
        "apache-tvm-ffi",
        "0.1.14.post0",
        "0.1.15",
        fatal=True,
        consequence="with which TVM 0.27 ends the process in its passes",
    ),
    "ml_dtypes": Package(
        "ml_dtypes",
        "0.3",
        "0.7",
        consequence="which takes more than half a second to import, here and in the process that compiles",
    ),
    "triton": Package("triton", "3.6", "4", optional=True),
    "onnx": Package("onnx", "1.16", "2", optional=True),
}
"""By import name."""


@dataclass(frozen=True)
class Problem:
    """An installed package that is absent or outside its range, in words that say what to do."""

    package: str
    detail: str
    fatal: bool = False


def installed(name: str) -> str | None:
    """The installed version of a package, by its import name here; None where it is absent."""
    try:
        return metadata.version(PACKAGES[name].name)
    except metadata.PackageNotFoundError:
        return None


def findings() -> list[Problem]:
    """What is wrong with the installed packages, in the order of `PACKAGES`."""
    return [problem for name in PACKAGES if (problem := _problem(name, installed(name)))]


def _problem(name: str, version: str | None) -> Problem | None:
    package = PACKAGES[name]
    remedy = f"pip install '{package.name}{package.range}'"
    if version is None:
        return None if package.optional else Problem(package.name, f"{package.name} is not installed: {remedy}")
    found, low, high = (_order(each) for each in (version, package.low, package.high))
    if low <= found and found.release < high.release:  # which leaves out an early release of `high`, as pip does
        return None
    return Problem(
        package.name, f"{package.name} {version} is installed, {package.consequence}: {remedy}", package.fatal
    )


class _Order(NamedTuple):
    """A key to sort versions by."""

    release: tuple[int, ...]
    is_final: bool
    post: int


def _order(version: str) -> _Order:
    """Where a version stands. What follows a "+" is how it was built, and does not count."""
    public = version.split("+")[0].lower()
    release = re.match(r"v?(\d+(?:\.\d+)*)", public)
    if release is None:
        return _Order((), False, -1)
    numbers = tuple(int(number) for number in re.sub(r"(\.0+)+$", "", release[1]).split("."))
    rest = public[release.end() :]
    post = re.search(r"post(\d+)", rest)
    is_early = re.match(r"[._-]?(a|b|c|rc|alpha|beta|pre|dev)", rest)
    return _Order(numbers, is_early is None, int(post[1]) if post else -1)
