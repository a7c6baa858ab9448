"""The adapter for a torch version, and the private names that it stands on."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from bridge.frontends.torch.adapters import ADAPTERS, adapter_for
from bridge.frontends.torch.capture import Capture
from bridge.ledger import DeadEnd, Ledger
from bridge.touched import TORCH


@pytest.mark.parametrize(
    ("version", "series", "exact"),
    [
        ("2.14.1+cu130", "2.14", True),
        ("2.11.0", "2.11", True),
        ("2.12.1+cpu", "2.12", True),
        ("2.16.0.dev2027", "2.15", False),
        ("2.9.1", "2.11", False),
        ("3.0.0", "2.15", False),
    ],
)
def test_the_exact_adapter_or_the_nearest(version: str, series: str, exact: bool) -> None:
    adapter, found_exact = adapter_for(version)
    assert series in adapter.series
    assert found_exact is exact


def test_each_series_has_one_adapter() -> None:
    series = [name for adapter in ADAPTERS for name in adapter.series]
    assert len(series) == len(set(series))


def test_this_torch_has_an_exact_adapter() -> None:
    assert adapter_for(torch.__version__)[1]


def test_a_version_without_an_adapter_is_an_event() -> None:
    def nothing(*args: Any) -> Any:
        raise AssertionError("nothing is compiled here")

    ledger = Ledger()
    Capture(nothing, ledger, decompositions={}, split=nothing, torch_version="2.99.0")
    (event,) = ledger
    assert event.dead_end is DeadEnd.API_INSTABILITY
    assert event.op == "torch 2.99"
    assert "no adapter for torch 2.99.0; the one for 2.15 is used" in event.detail


@pytest.mark.parametrize("name", [touched.name for touched in TORCH if not touched.without])
def test_private_names_are_where_they_are_looked_for(name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            owner = getattr(owner, part)
        return
    pytest.fail(f"no module of {name} can be imported")
