"""torch 2.11 and 2.12."""

from __future__ import annotations

from bridge.frontends.torch.adapters.base import Adapter

ADAPTER = Adapter(series=("2.11", "2.12"), isolates=False)
