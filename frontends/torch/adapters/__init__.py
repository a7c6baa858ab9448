"""One adapter a torch series. What differs between series differs here and nowhere else."""

from __future__ import annotations

from bridge.frontends.torch.adapters import v2_11, v2_13
from bridge.frontends.torch.adapters.base import PRIVATE_NAMES, Adapter

ADAPTERS: tuple[Adapter, ...] = (v2_11.ADAPTER, v2_13.ADAPTER)
"""In the order of the series."""

__all__ = ["ADAPTERS", "PRIVATE_NAMES", "Adapter", "adapter_for", "series_of"]


def series_of(version: str) -> str:
    """The series of a version: "2.14" of "2.14.1+cu130"."""
    return ".".join(version.split(".")[:2])


def adapter_for(version: str) -> tuple[Adapter, bool]:
    """The adapter for a torch version, and whether it is exact. Without an exact one, the nearest series' is given."""
    wanted = series_of(version)
    for adapter in ADAPTERS:
        if wanted in adapter.series:
            return adapter, True
    return min(ADAPTERS, key=lambda adapter: min(abs(_number(s) - _number(wanted)) for s in adapter.series)), False


def _number(series: str) -> int:
    major, _, minor = series.partition(".")
    return 1000 * int(major) + int(minor)
