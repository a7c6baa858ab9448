"""What a compiled frame does after its graph has run, read from its instructions.

Dynamo puts back there what the function changed beside tensors: attributes, lists, closures. A program that stands for
the graph alone would leave that out. An attribute that is set to a constant which it holds already is no change.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

EFFECTS = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF", "DELETE_ATTR", "DELETE_SUBSCR", "CALL")
"""Instructions by which code changes something that was there before it."""

SETS_ATTRIBUTE = "object_setattr_ignore_descriptor"
"""The function of Dynamo's that sets an attribute: of an object, by a name, to a value."""

CONSTANTS = (type(None), bool, int, float, str)
UNKNOWN, NULL = object(), object()


def effect_after_graph(code: Any, names: Mapping[str, Any]) -> str:
    """The first instruction after the call of the graph that changes something; "" where there is none.

    names: the globals with which the code runs.
    """
    instructions = list(dis.get_instructions(code))
    graph = [n for n, i in enumerate(instructions) if i.opname == "STORE_FAST" and "graph_out" in str(i.argval)]
    return _Reader(names).effect(instructions[graph[-1] + 1 :]) if graph else ""


class _Reader:
    """Follows constants, modules and what lies in them through the stack; all else is unknown."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._local: dict[str, Any] = {}
        self._stack: list[Any] = []

    def effect(self, instructions: Sequence[dis.Instruction]) -> str:
        for instruction in instructions:
            step = getattr(self, f"_{instruction.opname.lower()}", None)
            if step is not None:
                changes = step(instruction)
            elif instruction.opname.startswith(EFFECTS):
                changes = True
            else:
                changes = self._other(instruction)
            if changes:
                return instruction.opname.lower()
        return ""

    def _pop(self, count: int = 1) -> list[Any]:
        """The topmost values, the lowest first; unknown ones where the stack began before the graph's results."""
        self._stack = [UNKNOWN] * (count - len(self._stack)) + self._stack
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def _load_const(self, instruction: dis.Instruction) -> None:
        self._stack.append(instruction.argval)

    def _load_fast(self, instruction: dis.Instruction) -> None:
        self._stack.append(self._local.get(instruction.argval, UNKNOWN))

    def _store_fast(self, instruction: dis.Instruction) -> None:
        (self._local[instruction.argval],) = self._pop()

    def _load_global(self, instruction: dis.Instruction) -> None:
        if _grows_by(instruction) == 2:
            self._stack.append(NULL)
        self._stack.append(self._names.get(instruction.argval, UNKNOWN))

    def _load_attr(self, instruction: dis.Instruction) -> None:
        (owner,) = self._pop()
        if _grows_by(instruction) == 1:  # a method, and what it is one of
            self._stack += [UNKNOWN, UNKNOWN]
        else:
            found = getattr(owner, instruction.argval, UNKNOWN) if isinstance(owner, ModuleType) else UNKNOWN
            self._stack.append(found)

    def _push_null(self, instruction: dis.Instruction) -> None:
        self._stack.append(NULL)

    def _pop_top(self, instruction: dis.Instruction) -> None:
        self._pop()

    def _copy(self, instruction: dis.Instruction) -> None:
        depth = instruction.arg or 1
        self._stack += self._stack[-depth:][:1] if depth <= len(self._stack) else [UNKNOWN]

    def _swap(self, instruction: dis.Instruction) -> None:
        first, *between, last = self._pop(instruction.arg or 2)
        self._stack += [last, *between, first]

    def _precall(self, instruction: dis.Instruction) -> None:
        """Moves nothing on the stack (Python 3.11 alone has it)."""

    def _call(self, instruction: dis.Instruction) -> bool:
        arguments = self._pop(instruction.arg or 0)
        function = next((value for value in self._pop(2) if callable(value)), None)
        self._stack.append(UNKNOWN)
        sets = getattr(function, "__name__", "") == SETS_ATTRIBUTE and len(arguments) == 3
        return not (sets and _holds(*arguments))

    def _store_attr(self, instruction: dis.Instruction) -> bool:
        value, owner = self._pop(2)
        return not _holds(owner, instruction.argval, value)

    def _other(self, instruction: dis.Instruction) -> bool:
        """What is not followed: as many values as it leaves are there, the topmost is unknown."""
        grows = _grows_by(instruction)
        self._pop(max(-grows, 0) + 1)
        self._stack += [UNKNOWN] * (max(grows, 0) + 1)
        return False


def _grows_by(instruction: dis.Instruction) -> int:
    return dis.stack_effect(instruction.opcode, instruction.arg, jump=False)


def _holds(owner: Any, name: Any, value: Any) -> bool:
    """Whether an attribute is known to have a constant value already."""
    if owner is UNKNOWN or not isinstance(name, str) or not isinstance(value, CONSTANTS):
        return False
    held = getattr(owner, name, UNKNOWN)
    return type(held) is type(value) and held == value
