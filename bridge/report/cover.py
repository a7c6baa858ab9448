"""Which ops to implement next, so that the most models need nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Ops that together let more models run without a fallback. all_ops, all_models: with those of earlier steps."""

    ops: tuple[str, ...]
    models: tuple[str, ...]
    all_ops: int
    all_models: int


def cover(lacking: Mapping[str, Set[str]]) -> tuple[Step, ...]:
    """The steps for models by the ops that they lack, greedily: at each the most models for an op.

    Among equals the step of fewer ops is taken, then the one of the first names. Greed is not always the best order.
    """
    left = {model: set(ops) for model, ops in lacking.items() if ops}
    steps: list[Step] = []
    done = 0
    while left:
        candidates = {frozenset(ops) for ops in left.values()}
        unlocked = {ops: sorted(model for model, needs in left.items() if needs <= ops) for ops in candidates}
        best = min(candidates, key=lambda ops: (-len(unlocked[ops]) / len(ops), len(ops), sorted(ops)))
        models = tuple(unlocked[best])
        done += len(best)
        earlier = steps[-1].all_models if steps else 0
        steps.append(Step(tuple(sorted(best)), models, done, earlier + len(models)))
        left = {model: needs - best for model, needs in left.items() if model not in models}
    return tuple(steps)
