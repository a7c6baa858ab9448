"""The sweeps over all samples run when they are asked for: `pytest -m slow tests/backends/tvm`."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    skip = pytest.mark.skip(reason="a sweep over all samples: pytest -m slow")
    for item in items:
        if "slow" in item.keywords and item.path.parent.name == "tvm":
            item.add_marker(skip)
