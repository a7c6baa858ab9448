"""What a watch takes for the same: the objects that it saw, and not what merely equals them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bridge.runtime.guard import Watch


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (torch.ones(1), torch.ones(1)),
        (torch.tensor(2.0), torch.tensor(2.0)),
        (torch.ones(3), torch.ones(3)),
        (torch.ones(1), torch.ones(3)),
        (1, True),
        (1.0, 1),
        ((1, 2), (1.0, 2)),
        ("mean", "sum"),
        (None, False),
    ],
    ids=repr,
)
def test_another_object_is_noticed(before: Any, after: Any) -> None:
    held = {"first": "kept", "value": before}
    watch = Watch([held], [[before]])
    assert watch.same()
    held["value"] = after
    assert not watch.same()
    assert not watch.alike()


@pytest.mark.parametrize("before", [1000, 1.5, (3, 4), "mean"])
def test_an_equal_constant_is_as_good(before: Any) -> None:
    held = {"value": before}
    watch = Watch([held])
    held["value"] = type(before)(eval(repr(before)))
    assert watch.same() or watch.alike()
    assert watch.same()


def test_more_and_fewer_entries_are_noticed() -> None:
    held: dict[str, Any] = {"value": 1}
    watch = Watch([held])
    held["other"] = 2
    assert not watch.same()
    assert not watch.alike()
