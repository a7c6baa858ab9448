"""What every test starts from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is tested is built by the code that is tested, and the user's own cache is left alone."""
    os.environ["BRIDGE_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def fresh_torch() -> Iterator[None]:
    """The same seed for each test, and no graph and no count of recompilations left by another."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
