"""Conditions that Dynamo tells as text, checked as one expression of Python: its own check looks at all of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Check = Callable[[dict[str, Any]], bool]

COMMENT = re.compile(r"(?<=\)), type=<.*>$")
"""What a text ends in that is no Python."""

KNOWN: Mapping[str, Any] = {
    "___check_obj_id": lambda held, known: id(held) == known,
    "___check_type_id": lambda held, known: id(type(held)) == known,
    "___dict_contains": lambda key, held: key in held,
    "dict": dict,
    "len": len,
    "list": list,
    "torch": torch,
    "tuple": tuple,
    "type": type,
    "__builtins__": {},
}
"""What the texts call."""


def together(texts: Sequence[str], given: dict[str, Any], held: dict[str, Any]) -> Check | None:
    """Whether all of the texts are true of the locals that the check is asked about.

    given: locals of which they are true now. held: the globals. None where one is no such expression, or is not true.
    """
    try:
        code = compile(" and ".join(f"({COMMENT.sub('', text)})" for text in texts) or "True", "<guards>", "eval")
    except SyntaxError:
        return None
    scope = {**KNOWN, "G": held}

    def check(given: dict[str, Any]) -> bool:
        try:
            return bool(eval(code, scope, {"L": given}))
        except Exception:  # something is no longer there, or of another kind
            return False

    return check if check(given) else None
