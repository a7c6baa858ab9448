"""Where a node comes from: the line of the user's own program that asked for it."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable
from types import CodeType
from typing import Any

from torch import fx

_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO_FOLDER = os.path.join(_OWN_FOLDER, "demo", "")


def source_line(node: fx.Node) -> str:
    """The user's line that a node stands for: "model.py:12 in forward: y = torch.sort(x)".

    A node of a backward has the line of the forward op whose gradient it computes. Where no line of the user's asked
    for the node (a bare `nn.Sequential`), the module is named instead: "module layers.0 (Linear)"; "" where nothing
    is known.
    """
    return _innermost(node.meta.get("stack_trace") or "") or _module(node.meta)


def frame_line(frames: Iterable[traceback.FrameSummary]) -> str:
    """The innermost of these frames that is not the bridge's own, as `source_line` writes it; "" if there is none."""
    kept = [f for f in frames if not is_own(f.filename)]
    return _text(kept[-1].filename, kept[-1].lineno or 0, kept[-1].name, kept[-1].line or "") if kept else ""


def code_line(code: CodeType) -> str:
    """Where a function is defined, "model.py:12 in forward"; "" for the bridge's own."""
    return "" if is_own(code.co_filename) else _text(code.co_filename, code.co_firstlineno, code.co_name, "")


def is_own(filename: str) -> bool:
    """Whether a file is the bridge's own, so that its lines tell a user nothing. The demonstration is a user."""
    return filename.startswith(_OWN_FOLDER) and not filename.startswith(_DEMO_FOLDER)


def _innermost(trace: str) -> str:
    """The last frame of a printed traceback that is not the bridge's own."""
    lines = trace.splitlines()
    for position in range(len(lines) - 1, -1, -1):
        frame = _FRAME.match(lines[position])
        if frame and not is_own(frame["file"]):
            code = lines[position + 1] if position + 1 < len(lines) else ""
            return _text(frame["file"], int(frame["line"]), frame["function"], "" if _FRAME.match(code) else code)
    return ""


def _text(file: str, line: int, function: str, code: str) -> str:
    function = re.sub(r"^torch_dynamo_resume_in_(.+)_at_\d+$", r"\1", function.strip())
    place = f"{os.path.basename(file)}:{line} in {function}"
    return f"{place}: {code.strip()}" if code.strip() else place


def _module(meta: dict[str, Any]) -> str:
    """The innermost module that asked for a node, by its path in the user's model."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    name = kind if isinstance(kind, str) else kind.__name__
    inside = re.sub(r"^[LG]\['\w+'\](\.__closure__\[\d+\]\.cell_contents)?\.?", "", str(path))
    return " ".join(("module", *([inside] if inside else []), f"({name.rpartition('.')[2]})"))


def dotted_name(source: str) -> str:
    """The user's name of what Dynamo calls "L['module']._modules['layers']._modules['0']._parameters['weight']".

    Gives "layers.0.weight"; "x" for a bare argument "L['x']"; "" where no name can be read from it.
    """
    parts = re.findall(r"_(?:modules|parameters|buffers)\['([^']+)'\]", source)
    if parts:
        return ".".join(parts)
    argument = re.fullmatch(r"L\['(\w+)'\](.*)", source)
    if argument is None:
        return ""
    return argument[1] + re.sub(r"\['([^']+)'\]", r".\1", argument[2])
