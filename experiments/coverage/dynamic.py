"""Steps of one model of the corpus at two sizes of a batch dimension that is marked as dynamic.

python -m experiments.coverage.dynamic hf_gpt2 out.jsonl [--no-library]
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import bridge
from bridge.ledger import DeadEnd, Event, Measure, Record
from experiments.corpus import MODELS, Made
from experiments.corpus.batches import grown, sizes
from experiments.coverage.step import (
    BRIDGE,
    ROUNDED,
    WRONG,
    WRONG_RESULTS,
    Step,
    changed_steps,
    differences,
    doubled,
    eager_steps,
    furthest,
    is_far_by_rounding,
    main,
    placed,
    taken,
)

PROGRAMS = "programs compiled"
"""The measure of how many programs were compiled at each size."""


def measured(name: str, library: bool = True, device: str = "cpu") -> list[Record]:
    """What is wrong at either size, how the nodes ran, what was met, and how many programs each size took."""
    module, _, _, loss = placed(MODELS[name](), device)
    pristine = copy.deepcopy(module)
    compiled = bridge.compile(module, library=library)
    state = bridge.inspect(compiled)
    programs, seconds, events, rounded = [], [], [], 0
    for size in sizes(name):
        (args, kwargs), dynamic = grown(name, size, device)
        made: Made = (copy.deepcopy(pristine), copy.deepcopy(args), copy.deepcopy(kwargs), loss)
        reset(module, pristine)
        mark(dynamic)
        before = len(state.graphs)
        found = taken(compiled, args, kwargs, loss)
        programs.append(float(len(state.graphs) - before))
        seconds.append(found.seconds)
        wrong, within = judged(found, made, library, [(place(tensor, args, kwargs), dim) for tensor, dim in dynamic])
        events += [Event(DeadEnd.MAINTENANCE, what, f"at {size}: {how}", WRONG, model=name) for what, how in wrong]
        rounded += within
    return [
        *state.records(name),
        *events,
        Measure("first step", tuple(seconds), "s", BRIDGE, name),
        Measure(PROGRAMS, tuple(programs), "", BRIDGE, name),
        Measure(ROUNDED, (float(rounded),), "", BRIDGE, name),
        Measure(WRONG_RESULTS, (float(len(events)),), "", BRIDGE, name),
    ]


def judged(
    found: Step, made: Made, library: bool = True, dynamic: Sequence[tuple[int, int]] = ()
) -> tuple[list[tuple[str, str]], int]:
    """What is wrong of a step, and how many results are further off than eager's but within what rounding may do.

    dynamic: the dimensions of the inputs, by their places, that were marked.
    """
    eager = eager_steps(made, changes=0)
    further = differences(found, eager.step, eager.exact)
    if not further:
        return [], 0
    eager = replace(eager, changed=changed_steps(made))
    wrong = differences(found, furthest([eager.step, *eager.changed], eager.exact), eager.exact)

    def again() -> Made:
        module, args, kwargs, loss = doubled((*copy.deepcopy(made[:3]), made[3]))
        leaves = tree_leaves((args, kwargs))
        mark([(leaves[number], dim) for number, dim in dynamic])
        return module, args, kwargs, loss

    if wrong and is_far_by_rounding(again, library, found, eager, wrong):
        wrong = []
    return wrong, len(further) - len(wrong)


def mark(dynamic: Sequence[tuple[torch.Tensor, int]]) -> None:
    for tensor, dim in dynamic:
        torch._dynamo.maybe_mark_dynamic(tensor, dim)


def place(tensor: torch.Tensor, args: Any, kwargs: Any) -> int:
    """Where a tensor is among all values of the inputs."""
    return next(number for number, leaf in enumerate(tree_leaves((args, kwargs))) if leaf is tensor)


@torch.no_grad()
def reset(module: nn.Module, to: nn.Module) -> None:
    """Give the buffers of a module the values of another's, and take its gradients away."""
    for buffer, value in zip(module.buffers(), to.buffers(), strict=True):
        buffer.copy_(value)
    module.zero_grad()


if __name__ == "__main__":
    main(measured, __doc__)
