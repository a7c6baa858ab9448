"""Steps of one model of the corpus at two sizes of a batch dimension that is marked as dynamic.

python -m experiments.coverage.dynamic hf_gpt2 out.jsonl [--no-library]
"""

from __future__ import annotations

import copy

import torch
from torch import nn

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
    eager_steps,
    furthest,
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
        for tensor, dim in dynamic:
            torch._dynamo.maybe_mark_dynamic(tensor, dim)
        before = len(state.graphs)
        found = taken(compiled, args, kwargs, loss)
        programs.append(float(len(state.graphs) - before))
        seconds.append(found.seconds)
        wrong, within = judged(found, made)
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


def judged(found: Step, made: Made) -> tuple[list[tuple[str, str]], int]:
    """What is wrong of a step, and how many results are further off than eager's but within what rounding may do."""
    eager = eager_steps(made, changes=0)
    further = differences(found, eager.step, eager.exact)
    if not further:
        return [], 0
    wrong = differences(found, furthest([eager.step, *changed_steps(made)], eager.exact), eager.exact)
    return wrong, len(further) - len(wrong)


@torch.no_grad()
def reset(module: nn.Module, to: nn.Module) -> None:
    """Give the buffers of a module the values of another's, and take its gradients away."""
    for buffer, value in zip(module.buffers(), to.buffers(), strict=True):
        buffer.copy_(value)
    module.zero_grad()


if __name__ == "__main__":
    main(measured, __doc__)
