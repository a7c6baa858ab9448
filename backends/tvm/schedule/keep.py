"""Find what several walks over the columns of a row compute alike and dearly: the first one keeps it for the others.

A softmax takes the exponential of a row for its sum, and once more for its result; it needs it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridge.backends.tvm.index import Index, product, ravel
from bridge.backends.tvm.scalar import Guarded, Operation, Scalar, inside, walk
from bridge.backends.tvm.schedule.nest import Nest
from bridge.backends.tvm.schedule.vector import Lanes, width

ROOM = 1 << 15
"""Bytes of a row that are kept at most: they lie on the stack of a thread, and in its nearest cache."""


@dataclass
class Kept:
    """A row of what is kept. buffer: it, indexed by `place`. walk: the number of the walk that computes it."""

    buffer: Any
    place: Index
    walk: int = 1 << 30


def kept(nest: Nest, lanes: Lanes) -> list[Scalar]:
    """What is worth keeping, each part computed by the first walk that needs it."""
    columns = product(a.extent for a in nest.cols).constant
    if not columns or lanes.axis in nest.rows:
        return []
    walks = _walks(nest)
    guarded = _under_guards([root for roots in walks for root in roots])
    found: dict[int, Scalar] = {}
    known: set[int] = set()
    for roots in walks:
        for node in _outermost(roots, known - guarded):
            if any(node.uses(a) for a in nest.cols) and _is_dear(node):
                found[id(node)] = node
        known |= {id(node) for root in roots for node in walk(root)}
    result, room = [], ROOM
    for node in found.values():
        room -= columns * width(node.dtype)
        if room >= 0:
            result.append(node)
    return result


def place_in_row(nest: Nest) -> Index:
    """Where the element of a column lies among those that are kept of a row."""
    return ravel([Index.of(a) for a in nest.cols], [a.extent for a in nest.cols])


def _walks(nest: Nest) -> list[list[Scalar]]:
    """What each walk over the columns computes, in their order."""
    top = max((r.level for r in nest.reductions), default=0)
    walks: list[list[Scalar]] = [[] for _ in range(top + 1)]
    for reduction in nest.reductions:
        walks[reduction.level - 1].append(reduction.body)
    for store in nest.stores:
        if store.over_columns:
            walks[store.level].append(store.body)
    return walks


def _outermost(roots: Sequence[Scalar], known: set[int]) -> list[Scalar]:
    """The nodes that are known, without those that are needed for other known ones alone."""
    found: list[Scalar] = []
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in known and isinstance(node, Operation) and _is_dear(node):
            found.append(node)
        else:
            pending += [*node.operands, *inside(node)]
    return found


def _under_guards(roots: Sequence[Scalar]) -> set[int]:
    """What is computed where a condition holds: perhaps not by the first walk."""
    found: set[int] = set()
    for root in roots:
        for node in walk(root):
            if isinstance(node, Guarded):
                found |= {id(inner) for branch in (node.then, node.otherwise) for inner in walk(branch)}
    return found


def _is_dear(root: Scalar) -> bool:
    """Whether a function is called or a division made."""
    return any(isinstance(node, Operation) and ("." in node.name or node.name == "Div") for node in walk(root))
