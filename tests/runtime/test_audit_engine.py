"""Calls from the engine's own thread have no Python around them."""

from __future__ import annotations

from bridge.runtime.audit import _is_engines


def test_a_call_without_frames_is_nobodys() -> None:
    assert not _is_engines([])
