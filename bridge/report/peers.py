"""What other compilers have by name, over the nodes of the same models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.ledger import PeerAnswer, Placement, Way

CALLS = "bridge, by call"


@dataclass(frozen=True)
class Peer:
    """Of all captured nodes and of their distinct ops, those that a peer has.

    detail: what was asked, or why it could not be. missing: the ops that it has not, with their nodes, most first.
    """

    name: str
    detail: str
    asked: bool
    ops: int
    all_ops: int
    nodes: int
    all_nodes: int
    missing: tuple[tuple[str, int], ...]


def peers(answers: Sequence[PeerAnswer], placements: Sequence[Placement]) -> tuple[Peer, ...]:
    """Us first, then everybody who was asked, and then who was not there. Nothing where nobody was asked."""
    if not answers:
        return ()
    nodes: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for one in placements:
        if one.way is not Way.UNCAPTURED:
            nodes[one.op] += one.nodes
            refused[one.op] += one.nodes if one.way is Way.FALLBACK else 0
    ours = "takes every call, generated or from a library"
    found = [_peer(CALLS, ours, True, nodes, refused)]
    for name in dict.fromkeys(answer.peer for answer in answers):
        told = [answer for answer in answers if answer.peer == name]
        has = {answer.op for answer in told if answer.has}
        lacks = Counter({op: count for op, count in nodes.items() if op not in has})
        found.append(_peer(name, told[0].detail, bool(told[0].op), nodes, lacks))
    return tuple(sorted(found, key=lambda peer: not peer.asked))


def _peer(name: str, detail: str, asked: bool, nodes: Counter[str], lacks: Counter[str]) -> Peer:
    lacks = +lacks
    return Peer(
        name,
        detail,
        asked,
        len(nodes) - len(lacks),
        len(nodes),
        nodes.total() - lacks.total(),
        nodes.total(),
        tuple(sorted(lacks.items(), key=lambda item: (-item[1], item[0]))),
    )
