"""Installed versions are told from supported ones, and each problem names its remedy."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from bridge import versions
from bridge.versions import PACKAGES, findings


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """The versions that the packages are said to have; a test changes some."""
    given: dict[str, str | None] = {
        "torch": "2.14.1+cu130", "tvm": "0.27.0.post1", "tvm_ffi": "0.1.14.post1", "ml_dtypes": "0.6.0",
        "triton": "3.8.0", "onnx": None,
    }  # fmt: skip
    monkeypatch.setattr(versions, "installed", given.__getitem__)
    return given


def test_supported_versions_are_no_finding(installed: dict[str, str | None]) -> None:
    assert findings() == []


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("torch", None, "torch is not installed: pip install 'torch>=2.11,<2.16'"),
        ("torch", "2.10.3", "torch 2.10.3 is installed, which the bridge was not tested with"),
        ("torch", "2.16.0", "torch 2.16.0 is installed"),
        ("torch", "2.11.0a0+git123", "torch 2.11.0a0"),
        ("tvm", "0.28.dev1", "apache-tvm 0.28.dev1 is installed"),
        (
            "tvm_ffi",
            "0.1.15.post2",
            "with which TVM 0.27 ends the process in its passes: pip install 'apache-",
        ),
        ("tvm_ffi", "0.1.14", "apache-tvm-ffi 0.1.14 is installed"),
        ("ml_dtypes", "0.7.0", "more than half a second to import"),
        ("onnx", "1.2", "onnx 1.2 is installed"),
    ],
)
def test_problem(installed: dict[str, str | None], name: str, version: str | None, words: str) -> None:
    installed[name] = version
    (problem,) = findings()
    assert words in problem.detail
    assert problem.fatal == (name == "tvm_ffi")


def test_versions_are_ordered_as_pip_orders_them() -> None:
    rising = ["0.1.9", "0.1.14.dev2", "0.1.14", "0.1.14.post0", "0.1.14.post1", "0.1.15rc1", "0.1.15", "2", "2.10"]
    assert all(versions._order(low) < versions._order(high) for low, high in pairwise(rising))
    assert versions._order("2.14.1+cpu") == versions._order("2.14.1+cu130") == versions._order("2.14.1.0")


def test_ranges_are_those_of_the_distribution() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    declared = dict(re.findall(r"^([\w-]+)([^;\s]*)", "\n".join(project["dependencies"]), re.MULTILINE))
    for package in PACKAGES.values():
        if not package.optional:
            assert declared[package.name] == package.range
