"""One training step of one model of the corpus, through eager and through the bridge, as the records of a ledger file.

python -m experiments.coverage.step hf_gpt2 out.jsonl [--no-library] [--device cuda]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import math
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import bridge
from bridge.api import Audit
from bridge.cli.processes import RAISED
from bridge.ledger import DeadEnd, Event, Measure, Record
from bridge.ledger.jsonl import write
from experiments.corpus import MODELS, Loss, Made
from experiments.coverage.exact import Draws, in_float64, widened
from experiments.measure import OFF, largest, wrong_gradients

BRIDGE, EAGER, CHANGED = "bridge", "eager", "eager, last bits changed"
CHANGES = 12
WRONG = "wrong result"
"""The kind of the events that say what is wrong of a model."""
WRONG_RESULTS = "wrong results"
"""The name of the measure that a finished step has."""
ROUNDED = "results within rounding"
"""Of results further off than eager's, but no further than eager's with the last bits of the weights changed."""
RIGHT_IN_FLOAT64 = "right in float64"
"""Whether a step that is further off was shown to be so by rounding alone."""
UNCAPTURED_CALL = "uncaptured call"
UNCAPTURED_CALLS = "uncaptured calls"
"""The measure of how many calls the audit found outside of every program."""

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Step:
    """What a forward, its loss and the backward leave behind.

    outputs: with the loss. others: the types of results that are no tensors. tangents: the gradients that the loss
    itself gives to the results.
    """

    outputs: Tensors
    gradients: Tensors
    buffers: Tensors
    others: Mapping[str, str]
    generator: torch.Tensor
    tangents: Tensors
    seconds: float


def taken(module: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], loss: Loss) -> Step:
    """A step from seed 0. The loss counts as an output; inputs of which a gradient is wanted as parameters."""
    torch.manual_seed(0)
    start = perf_counter()
    output = module(*args, **kwargs)
    leaves = {f"output {number}": leaf for number, leaf in enumerate(tree_leaves(output))}
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
    value = loss(output)
    value.backward()
    seconds = perf_counter() - start
    assert isinstance(module, nn.Module)
    wanted = [*module.named_parameters(), *inputs((args, kwargs))]
    return Step(
        outputs=copies({**tensors, "loss": value}),
        gradients=copies({name: tensor.grad for name, tensor in wanted if tensor.grad is not None}),
        buffers=copies(dict(module.named_buffers())),
        others={name: type(leaf).__name__ for name, leaf in leaves.items() if name not in tensors},
        generator=torch.get_rng_state() if value.device.type == "cpu" else torch.cuda.get_rng_state(),
        tangents=tangents(output, loss),
        seconds=seconds,
    )


def inputs(tree: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The inputs of which a gradient is wanted."""
    for number, leaf in enumerate(tree_leaves(tree)):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            yield f"input {number}", leaf


def tangents(output: Any, loss: Loss) -> Tensors:
    """The gradients that a loss gives to each result, not counting those that come by way of another result."""

    def cut(value: Any) -> Any:
        wanted = isinstance(value, torch.Tensor) and value.requires_grad
        return value.detach().requires_grad_() if wanted else value

    apart = tree_map(cut, output)
    loss(apart).backward()
    leaves = enumerate(tree_leaves(apart))
    return {f"output {n}": t.grad for n, t in leaves if isinstance(t, torch.Tensor) and t.grad is not None}


def copies(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Eager:
    """The step in eager: in float32, in float64, and in float32 after a change of the weights in their last bit.

    How far the changed ones are from the exact one says how far rounding alone may lead: where a maximum is all but
    shared, or a batch norm sees next to no variance, that is far, and no two programs agree there.
    """

    step: Step
    exact: Step
    changed: Sequence[Step]


def eager_steps(made: Made, changes: int = CHANGES) -> Eager:
    """The steps of copies of a model."""
    module, args, kwargs = copy.deepcopy(made[:3])
    with Draws() as draws:
        eager = taken(module, args, kwargs, made[3])
    changed = changed_steps(made, changes)
    module, args, kwargs = copy.deepcopy(made[:3])
    args, kwargs = widened(args), widened(kwargs)
    with in_float64(draws.kept):
        exact = taken(module.double(), args, kwargs, made[3])
    return Eager(eager, exact, changed)


def changed_steps(made: Made, changes: int = CHANGES) -> list[Step]:
    """Steps of copies of a model after a change of the weights in their last bit, each by another chance."""
    changed = []
    for seed in range(changes):
        module, args, kwargs = copy.deepcopy(made[:3])
        change_last_bits(module, seed)
        changed.append(taken(module, args, kwargs, made[3]))
    return changed


@torch.no_grad()
def change_last_bits(module: nn.Module, seed: int) -> None:
    """Each weight to the next larger or smaller number, or left as it is, by chance."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        if parameter.dtype == torch.float32:
            to = torch.randint(-1, 2, parameter.shape, generator=generator).to(parameter.device) * torch.inf
            parameter.copy_(torch.where(to.isnan(), parameter, torch.nextafter(parameter, to.to(parameter.dtype))))


def furthest(steps: Sequence[Step], exact: Step) -> Step:
    """Of each tensor the one that is furthest from the exact one."""

    def chosen(what: str) -> Tensors:
        exactly, first = getattr(exact, what), getattr(steps[0], what)
        kept = dict(first)
        for name in first.keys() & exactly.keys():
            of_name = [getattr(step, what)[name] for step in steps if name in getattr(step, what)]
            alike = [tensor for tensor in of_name if tensor.shape == exactly[name].shape]
            kept[name] = max(alike, key=lambda tensor: largest(tensor.double() - exactly[name]), default=first[name])
        return kept

    return replace(steps[0], outputs=chosen("outputs"), gradients=chosen("gradients"), buffers=chosen("buffers"))


def differences(found: Step, eager: Step, exact: Step) -> list[tuple[str, str]]:
    """All in which a step is wrong: what it is of (gradient, output, buffer, generator), and how."""
    wrong: list[tuple[str, str]] = []
    for what in ("output", "gradient", "buffer"):
        of_found, of_eager, of_exact = (getattr(step, f"{what}s") for step in (found, eager, exact))
        wrong += [(what, f"{name}: only on one side") for name in sorted(of_found.keys() ^ of_eager.keys())]
        shared = of_found.keys() & of_eager.keys() & of_exact.keys()
        kinds = {name for name in shared if described(of_found[name]) != described(of_eager[name])}
        wrong += [(what, f"{n}: {described(of_found[n])}, should be {described(of_eager[n])}") for n in sorted(kinds)]
        numbers = {name for name in shared - kinds if of_eager[name].is_floating_point()}
        chosen = ({name: step[name] for name in numbers} for step in (of_found, of_eager, of_exact))
        wrong += [(what, str(difference)) for difference in wrong_gradients(*chosen)]
        others = sorted(shared - kinds - numbers)
        wrong += [(what, f"{name}: other values") for name in others if not torch.equal(of_found[name], of_eager[name])]
    if found.others != eager.others:
        wrong.append(("output", f"{found.others}, should be {eager.others}"))
    if not torch.equal(found.generator, eager.generator):
        wrong.append(("generator", "other random numbers were drawn"))
    return wrong


def described(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


@contextlib.contextmanager
def drawn_in_the_open(module: nn.Module) -> Iterator[None]:
    """Eager with recurrent modules that drop out drawing as any dropout does, from torch's generator.

    cuDNN draws inside of a whole net, from numbers that nobody else can have: no two programs agree there. torch's own
    loops draw layer by layer, which is what is captured.
    """
    drops = any(isinstance(part, nn.RNNBase) and part.dropout for part in module.modules())
    with torch.backends.cudnn.flags(enabled=False, allow_tf32=False) if drops else contextlib.nullcontext():
        yield


def is_far_by_rounding(
    make: Callable[[], Made], library: bool, found: Step, eager: Eager, wrong: Iterable[tuple[str, str]]
) -> bool:
    """Whether a step is what eager's is in float64, and as a whole as near as eager's may be, or half as near as it.

    A dozen changes of the last bits do not meet every unit that rounding may switch on or off. So all gradients
    together are looked at, all outputs and all buffers. Rounding changes numbers alone: nothing else is let pass.
    make: the model and its inputs in float64. wrong: what `differences` found.
    """
    if not all(OFF in how for _, how in wrong):
        return False
    for what in ("gradients", "outputs", "buffers"):
        furthest_off = max(error_of(what, step, eager.exact) for step in eager.changed)
        if error_of(what, found, eager.exact) > max(furthest_off, 2 * error_of(what, eager.step, eager.exact)):
            return False
    steps = []
    for compile in (lambda module: bridge.compile(module, library=library), lambda module: module):
        module, args, kwargs, loss = make()
        try:
            with drawn_in_the_open(module):
                steps.append(taken(compile(module), args, kwargs, loss))
        except (RuntimeError, TypeError, ValueError):
            return False  # there is no such step in float64
    return not differences(steps[0], steps[1], steps[1])


def doubled(made: Made) -> Made:
    """A model and its inputs in float64."""
    module, args, kwargs, loss = made
    return module.double(), widened(args), widened(kwargs), loss


def gradient_error(step: Step, exact: Step) -> float:
    """The length of the error of all gradients together, as a share of theirs."""
    return error_of("gradients", step, exact)


def error_of(what: str, step: Step, exact: Step) -> float:
    """The length of the error of all gradients together, outputs or buffers, as a share of the exact ones' length."""
    found, wanted = getattr(step, what), getattr(exact, what)
    shared = [
        n for n in found.keys() & wanted.keys() if wanted[n].is_floating_point() and found[n].shape == wanted[n].shape
    ]
    lengths = [_length(found[name].double() - wanted[name] for name in shared), _length(wanted[n] for n in shared)]
    return lengths[0] / lengths[1] if lengths[1] else 0.0


def _length(tensors: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(tensor.norm().item() ** 2 for tensor in tensors))


def audited(name: str, module: Any, args: Any, kwargs: Any, given: Tensors) -> list[Record]:
    """What a step of forward and backward dispatches, with the gradients of the results given."""

    def step() -> None:
        leaves = tree_leaves(module(*args, **kwargs))
        chosen = {f"output {number}": leaf for number, leaf in enumerate(leaves)}
        torch.autograd.backward([chosen[output] for output in given], list(given.values()))

    audit: Audit = bridge.audit(step)
    counts = {
        "kernels called": audit.kernels,
        "library calls": sum(audit.library.values()),
        "fallback calls": sum(audit.fallback.values()),
        UNCAPTURED_CALLS: sum(call.count for call in audit.uncaptured),
        "missing calls": sum(audit.missing.values()),
    }
    outside = [
        Event(DeadEnd.COVERAGE, c.op, "it ran outside of every program", UNCAPTURED_CALL, backend=EAGER,
              count=c.count, source=c.source, model=name)
        for c in audit.uncaptured
    ]  # fmt: skip
    return [*outside, *(Measure(what, (float(count),), "", BRIDGE, name) for what, count in counts.items())]


def placed(made: Made, device: str) -> Made:
    """A model and its arguments on a device."""
    module, args, kwargs, loss = made
    args, kwargs = tree_map(
        lambda leaf: moved(leaf, device) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs)
    )
    return module.to(device), args, kwargs, loss


def moved(tensor: Any, device: str) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    return tensor.detach().to(device).requires_grad_(tensor.requires_grad)


def measured(name: str, library: bool = True, device: str = "cpu") -> list[Record]:
    """All that is to be told of a model: what is wrong, how its nodes ran, what was met, and how long it took."""
    made = MODELS[name]() if device == "cpu" else placed(MODELS[name](), device)
    with drawn_in_the_open(made[0]):
        eager = eager_steps(made)
    module, args, kwargs, loss = made
    compiled = bridge.compile(module, library=library)
    found = taken(compiled, args, kwargs, loss)
    further = differences(found, eager.step, eager.exact)
    wrong = differences(found, furthest([eager.step, *eager.changed], eager.exact), eager.exact) if further else []
    exactly = bool(wrong) and is_far_by_rounding(
        lambda: doubled(placed(MODELS[name](), device)), library, found, eager, wrong
    )
    wrong = [] if exactly else wrong
    events = [Event(DeadEnd.MAINTENANCE, what, how, WRONG, model=name) for what, how in wrong]
    rounded = len(further) - len(wrong)
    calls = audited(name, compiled, args, kwargs, found.tangents)
    return [
        *bridge.inspect(compiled).records(name),
        *events,
        *calls,
        Measure("first step", (found.seconds,), "s", BRIDGE, name),
        Measure("first step", (eager.step.seconds,), "s", EAGER, name),
        Measure("gradient error", (gradient_error(eager.step, eager.exact),), "", EAGER, name),
        Measure("gradient error", (gradient_error(found, eager.exact),), "", BRIDGE, name),
        Measure("gradient error", tuple(gradient_error(s, eager.exact) for s in eager.changed), "", CHANGED, name),
        Measure(ROUNDED, (float(rounded),), "", BRIDGE, name),
        Measure(RIGHT_IN_FLOAT64, (float(exactly),), "", BRIDGE, name),
        Measure(WRONG_RESULTS, (float(len(wrong)),), "", BRIDGE, name),
    ]


def raised(name: str, error: Exception) -> Event:
    """What a step raised, with the line of ours that called and the innermost one."""
    first = [line.strip() for line in str(error).splitlines() if line.strip()][:3]
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}"
    detail = f"{type(error).__name__}: {' '.join(first)}"
    return Event(DeadEnd.MAINTENANCE, "step", detail[:500], RAISED, source=place, model=name)


def main(measure: Callable[[str, bool, str], list[Record]] = measured, about: str | None = __doc__) -> None:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS, metavar="NAME")
    parser.add_argument("file", type=Path)
    parser.add_argument("--no-library", dest="library", action="store_false")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False  # convolutions in float32, as they are compared
    warnings.filterwarnings("ignore")  # the packages' own: deprecations, and advice on what to install
    try:
        records = measure(given.name, given.library, given.device)
    except Exception as error:
        records = [raised(given.name, error)]
    write(given.file, records)


if __name__ == "__main__":
    main()
