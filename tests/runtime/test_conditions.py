"""Conditions that are told as text hold as long as what they speak of does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bridge.runtime.conditions import together


def test_all_of_them_are_checked() -> None:
    config, scope = SimpleNamespace(size=3, kinds=(1, 2)), {"flag": True}
    texts = [
        "L['self'].size == 3",
        "len(L['self'].kinds) == 2",
        "G['flag'] == True",
        f"___check_obj_id(L['self'], {id(config)}), type=<class 'types.SimpleNamespace'>",
    ]
    check = together(texts, {"self": config}, scope)
    assert check is not None
    assert check({"self": config})
    assert not check({"self": SimpleNamespace(size=3, kinds=(1, 2))})
    scope["flag"] = False
    assert not check({"self": config})
    scope["flag"] = True
    del config.kinds
    assert not check({"self": config})


@pytest.mark.parametrize("text", ["L['x'] is", "no_such_function(L['x'])", "L['x'] == 4", "L['y'] == 3"])
def test_what_cannot_be_read_or_is_not_true_is_left_to_others(text: str) -> None:
    assert together(["L['x'] == 3", text], {"x": 3}, {}) is None


def test_of_no_conditions_there_is_nothing_to_check() -> None:
    check = together([], {}, {})
    assert check is not None
    assert check({})
