"""PrimFuncs that are run as they are: TVM's default order of loops, but arguments that may begin anywhere."""

# TVM sets the attributes of its classes from C++.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
from typing import Any

import tvm
from tvm_ffi.serialization import from_json_graph_str

from bridge.backends.tvm.codegen import plain_loops
from bridge.backends.tvm.schedule.vector import width


def scheduled_opaque(function: Any) -> Any:
    """The function as loops, its buffers aligned to their elements only.

    TVM takes for granted that memory begins on 64 bytes, and a view that does not would end the process. Buffers are
    variables that cannot be exchanged from Python, so their types are changed where they are written down.
    """
    nodes = json.loads(tvm.ir.save_json(plain_loops(function)))
    for node in nodes["nodes"]:
        if node["type"] == "tirx.BufferType":
            element = nodes["nodes"][node["data"]["dtype"]]
            node["data"]["data_alignment"] = width(element["data"]["dtype"])
    return from_json_graph_str(json.dumps(nodes)).without_attr("global_symbol")
