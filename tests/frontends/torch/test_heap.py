"""What was there before a compilation is left alone by the collector, and is its own again afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge import api
from bridge.frontends.torch.heap import set_aside


@pytest.fixture(autouse=True)
def nothing_is_set_aside() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.enable()


class Node:
    """Something that only the collector takes away."""

    def __init__(self) -> None:
        self.itself = self


def test_only_what_is_made_within_is_collected() -> None:
    before = Node()
    old = weakref.ref(before)
    with set_aside():
        del before
        new = weakref.ref(Node())
        gc.collect()
        assert old() is not None
        assert new() is None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert old() is None


def test_what_the_user_chose_stays() -> None:
    gc.freeze()
    with set_aside():
        pass
    assert gc.get_freeze_count()
    gc.unfreeze()
    gc.disable()
    with set_aside():
        assert gc.get_freeze_count() == 0
    assert not gc.isenabled()


def test_an_exception_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), set_aside():
        raise ZeroDivisionError
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("whole", [False, True])
def test_while_a_model_is_compiled(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    seen: list[bool] = []
    made = api._compile_graph

    def watched(*given: Any) -> Any:
        seen.append(gc.get_freeze_count() > 0)
        return made(*given)

    monkeypatch.setattr(api, "_compile_graph", watched)
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    if whole:
        bridge.compile_step(net, torch.optim.SGD(net.parameters(), lr=0.1), torch.Tensor.mean)(x)
    else:
        bridge.compile(net)(x).sum().backward()
    assert seen
    assert all(seen)
    assert gc.get_freeze_count() == 0
