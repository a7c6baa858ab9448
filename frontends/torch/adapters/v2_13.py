"""torch 2.13, 2.14 and 2.15."""

from __future__ import annotations

from bridge.frontends.torch.adapters.base import Adapter

ADAPTER = Adapter(series=("2.13", "2.14", "2.15"), isolates=True)
