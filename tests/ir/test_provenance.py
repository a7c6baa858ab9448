"""A node is traced to the user's own line."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from torch import fx, nn

import bridge
from bridge.ir import provenance
from bridge.ir.provenance import code_line, dotted_name, frame_line, is_own, source_line

TRACE = """  File "/home/me/model.py", line 12, in forward
    y = torch.sort(x)
        ^^^^^^^^^^^^^
"""


def node(**meta: Any) -> fx.Node:
    made = fx.Graph().placeholder("x")
    made.meta.update(meta)
    return made


def test_the_innermost_line_with_its_text() -> None:
    outer = '  File "/home/me/train.py", line 3, in <module>\n    model(x)\n'
    assert source_line(node(stack_trace=outer + TRACE)) == "model.py:12 in forward: y = torch.sort(x)"


def test_a_frame_without_text_and_a_node_without_frames() -> None:
    assert source_line(node(stack_trace='  File "a.py", line 1, in f')) == "a.py:1 in f"
    assert source_line(node()) == ""


def test_the_bridges_own_frames_are_nobodys_line() -> None:
    own = f'  File "{provenance.__file__}", line 1, in call\n    return function()\n'
    assert source_line(node(stack_trace=TRACE + own)) == "model.py:12 in forward: y = torch.sort(x)"
    assert source_line(node(stack_trace=own)) == ""


def test_a_resumed_function_has_its_own_name() -> None:
    trace = '  File "a.py", line 7, in torch_dynamo_resume_in_forward_at_6\n    y = 1\n'
    assert source_line(node(stack_trace=trace)) == "a.py:7 in forward: y = 1"


def test_a_module_stands_in_where_no_line_is_known() -> None:
    stack = {"1": ("L['module']", nn.Sequential), "2": ("L['module'].layers.0", "torch.nn.modules.linear.Linear")}
    assert source_line(node(nn_module_stack=stack)) == "module layers.0 (Linear)"
    assert source_line(node(fwd_nn_module_stack={"1": ("L['module']", nn.ReLU)})) == "module (ReLU)"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['module']._modules['layers']._modules['0']._parameters['weight']", "layers.0.weight"),
        ("L['self']._buffers['mean']", "mean"),
        ("L['x']", "x"),
        ("L['batch']['x']", "batch.x"),
        ("L['args'][0]", "args[0]"),
        ("___stack0", ""),
    ],
)
def test_names_of_inputs(source: str, name: str) -> None:
    assert dotted_name(source) == name


def test_frames_and_code_of_the_running_program() -> None:
    line = frame_line(traceback.extract_stack())
    assert line.startswith("test_provenance.py:")
    assert line.endswith("line = frame_line(traceback.extract_stack())")
    assert code_line(node.__code__).startswith("test_provenance.py:")
    assert code_line(source_line.__code__) == ""
    assert is_own(provenance.__file__)
    assert not is_own(__file__)


def test_forward_and_backward_nodes_name_the_same_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sum()

    compiled = bridge.compile(program, "eager")
    compiled(torch.randn(3, requires_grad=True)).backward()
    for graph in bridge.inspect(compiled).graphs:
        calls = [n for n in graph.graph.nodes if n.op == "call_function"]
        assert calls
        assert all(source_line(call).endswith("in program: return x.sin().sum()") for call in calls)
