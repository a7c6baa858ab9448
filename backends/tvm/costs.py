"""What an element costs to compute: how many of a processor's operations a scalar counts for."""

from __future__ import annotations

from bridge.backends.tvm.loops import Computation
from bridge.backends.tvm.scalar import Constant, Guarded, Load, Operation, Scalar

DEAR = 8
"""What a division or a function counts for."""

DIVISIONS = frozenset({"Div", "FloorDiv", "FloorMod", "Mod"})
FREE = frozenset({"Cast", "Select", "Not", "And", "Or", "EQ", "NE", "LT", "LE", "GT", "GE"})


def operations(node: Scalar) -> int:
    """What the node itself counts for, without its operands."""
    if isinstance(node, Operation):
        return DEAR if node.name in DIVISIONS or "." in node.name else int(node.name not in FREE)
    return 2 if isinstance(node, Guarded) else 0


def moves(step: Computation) -> bool:
    """Whether a computation only moves elements, or is a constant."""
    return not step.reduced and isinstance(step.body, Load | Constant)
