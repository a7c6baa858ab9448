"""What a compiled frame changes after its graph has run."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from bridge.frontends.torch.epilogue import SETS_ATTRIBUTE, effect_after_graph

held = types.ModuleType("held")
held.inner = types.SimpleNamespace(flag=False, name=None, count=3)  # type: ignore[attr-defined]
dynamo = types.ModuleType("dynamo")
setattr(dynamo, SETS_ATTRIBUTE, types.FunctionType((lambda o, n, v: None).__code__, {}, SETS_ATTRIBUTE))
dynamo.other = print  # type: ignore[attr-defined]


def nothing(graph: Any) -> Any:
    graph_out_0 = graph()
    return [graph_out_0[0]], {"a": graph_out_0[1]}


def what_is_held(graph: Any) -> Any:
    graph_out_0 = graph()
    owner = held.inner
    set_attribute = dynamo.object_setattr_ignore_descriptor
    set_attribute(owner, "flag", False)
    set_attribute(owner, "name", None)
    owner.count = 3
    return graph_out_0[0]


def another_value(graph: Any) -> Any:
    graph_out_0 = graph()
    dynamo.object_setattr_ignore_descriptor(held.inner, "flag", True)
    return graph_out_0[0]


def another_type(graph: Any) -> Any:
    graph_out_0 = graph()
    held.inner.count = True
    return graph_out_0[0]


def a_result(graph: Any) -> Any:
    graph_out_0 = graph()
    held.inner.name = graph_out_0[0]
    return graph_out_0[0]


def an_unknown_owner(graph: Any, owner: Any) -> Any:
    graph_out_0 = graph()
    owner.name = None
    return graph_out_0[0]


def another_function(graph: Any) -> Any:
    graph_out_0 = graph()
    dynamo.other(held.inner, "flag", False)
    return graph_out_0[0]


def an_element(graph: Any, values: Any) -> Any:
    graph_out_0 = graph()
    values[0] = 1
    return graph_out_0[0]


@pytest.mark.parametrize("function", [nothing, what_is_held])
def test_what_changes_nothing(function: Callable[..., Any]) -> None:
    assert effect_after_graph(function.__code__, globals()) == ""


@pytest.mark.parametrize(
    "function", [another_value, another_type, a_result, an_unknown_owner, another_function, an_element]
)
def test_what_changes_something(function: Callable[..., Any]) -> None:
    assert effect_after_graph(function.__code__, globals()) != ""
