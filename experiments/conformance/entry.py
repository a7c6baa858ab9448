"""What becomes of an entry of OpInfo or ModuleInfo: its samples through eager and through the bridge, compared."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves, tree_map

import bridge
from bridge.conformance.elements import differing
from bridge.ledger import DeadEnd, Event, Measure, Placement, Record, Way
from experiments.conformance.modules import MODULES, module_samples
from experiments.conformance.samples import Sample, samples
from experiments.coverage.exact import WIDER, Draws, in_float64, widened

FAKE_FAILED = "TorchRuntimeError"
"""Raised by torch.compile, whatever its backend, where torch cannot tell what a call gives without its values."""

WRONG, RAISED, CRASHED, NOT_CAPTURED, NO_SAMPLE = "wrong result", "raised", "crashed", "uncaptured", "no sample"
"""Kinds of the events that say what became of an entry."""
SAMPLES = "samples"
"""The measure that every finished entry has: how many samples ran, and how many of them were right."""
MANY = "many"
"""The op of a placement that counts the nodes of several overloads."""
KEPT_DETAIL = 240
"""Characters of a reason that are kept."""


@dataclass(frozen=True)
class Result:
    """What a call gives.

    outputs: of a module also its buffers, as the call left them. gradients: of each input and parameter of which one is
    wanted, None where there is none.
    """

    outputs: list[Any]
    gradients: list[torch.Tensor | None]


def called(call: Callable[..., Any], arguments: Any) -> Result:
    """The outputs, and the gradients for random ones of the outputs, all random numbers drawn from seed 0."""
    torch.manual_seed(0)
    outputs = tree_leaves(call(*arguments))
    modules = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, nn.Module)]
    given = [*tree_leaves(arguments), *(p for module in modules for p in module.parameters())]
    wanted = [t for t in given if isinstance(t, torch.Tensor) and t.requires_grad]
    reached = [t for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    gradients: Sequence[torch.Tensor | None] = [None] * len(wanted)
    if wanted and reached:
        gradients = torch.autograd.grad(reached, wanted, cotangents(reached), allow_unused=True)
    buffers = [buffer for module in modules for buffer in module.buffers()]
    return Result([_held(value) for value in (*outputs, *buffers)], [_held(g) for g in gradients])


def cotangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same numbers for outputs in float32 and in float64."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for output in outputs:
        wide = torch.complex64 if output.dtype.is_complex else torch.float32
        made.append(torch.randn(output.shape, dtype=wide, generator=generator).to(output.dtype))
    return made


def _held(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return (value if value.layout == torch.strided else value.to_dense()).detach().clone()


def exact(sample: Sample, draws: Draws, eager: Result) -> Result:
    """The result in float64 where torch has one of the same form, else eager's own."""
    arguments = tree_map(_wider, widened(sample.fresh()))
    try:
        with in_float64(draws.kept):
            made = called(sample.run, arguments)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, StopIteration):
        return eager
    return Result(
        [m if _alike(m, e) else e for m, e in zip(made.outputs, eager.outputs, strict=True)],
        [m if _alike(m, e) else e for m, e in zip(made.gradients, eager.gradients, strict=True)],
    )


def _wider(value: Any) -> Any:
    """A module in float64, and float64 for a type that is asked for by argument."""
    if isinstance(value, nn.Module):
        return value.double()
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def _alike(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    kinds = [(t.shape, t.is_floating_point(), t.is_complex()) for t in (a, b)]
    return kinds[0] == kinds[1]


def differences(name: str, found: Result, eager: Result, precise: Result) -> list[str]:
    """All in which a result is wrong. What memory holds that was never written is nobody's promise."""
    values = "empty" not in name
    wrong = []
    for what in ("outputs", "gradients"):
        mine, theirs, exactly = (getattr(result, what) for result in (found, eager, precise))
        if len(mine) != len(theirs):
            return [f"{len(mine)} {what}, should be {len(theirs)}"]
        for number, triple in enumerate(zip(mine, theirs, exactly, strict=True)):
            reason = difference(*triple, values)
            wrong += [f"{what[:-1]} {number}: {reason}"] if reason else []
    return wrong


def difference(mine: Any, theirs: Any, precise: Any, values: bool = True) -> str | None:
    """In what one result is wrong; None if it is right."""
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        same = type(mine) is type(theirs) and (mine == theirs or mine != mine)
        return None if same else f"{_said(mine)}, should be {_said(theirs)}"
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        return f"{_said(mine)}, should be {_said(theirs)}"
    wrong = differing(mine, theirs, precise, of_all=True)
    if not values or not wrong.any():
        return None
    at = tuple(wrong.nonzero()[0].tolist())
    return f"{int(wrong.sum())} of {wrong.numel()} differ, at {list(at)} {mine[at].item()}, not {theirs[at].item()}"


def _said(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def outcome(name: str, dtype: torch.dtype, count: int, symbolic: bool) -> list[Record]:
    """The records of an entry."""
    records: list[Record] = []
    tried = right = 0
    for sample in (module_samples if name in MODULES else samples)(name, dtype, count):
        with Draws() as draws:
            try:
                eager = called(sample.run, sample.fresh())
            except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AssertionError):
                continue  # torch itself does not take it
        of_sample = compared(name, sample, eager, exact(sample, draws, eager), symbolic)
        tried, right = tried + 1, right + (not any(_is_bad(r) for r in of_sample))
        records += of_sample
    if not tried:
        records.append(Event(DeadEnd.COVERAGE, name, "eager takes none of the samples", NO_SAMPLE))
    return [*summed(name, records), Measure(SAMPLES, (tried, right), model=name)]


def compared(name: str, sample: Sample, eager: Result, precise: Result, symbolic: bool) -> list[Record]:
    """What the bridge makes of a sample: how its nodes ran, and in what it is wrong."""
    torch._dynamo.reset()
    counters.clear()
    arguments = sample.fresh()
    compiled, call = sample.compiled(arguments, symbolic)
    compilation = bridge.inspect(compiled)
    try:
        found = called(call, arguments)
    except Exception as error:
        event = raised(sample.name, error)
        if type(error).__name__ == FAKE_FAILED:
            return [replace(event, dead_end=DeadEnd.COVERAGE, op="call", kind=NOT_CAPTURED)]
        return [*compilation.records(), event]
    wrong = differences(name, found, eager, precise)
    events = [Event(DeadEnd.MAINTENANCE, sample.name, reason, WRONG) for reason in wrong]
    ran = any(graph.runs[0] for graph in compilation.graphs)
    if not ran and not any(event.kind == NOT_CAPTURED for event in compilation.ledger):
        events.append(Event(DeadEnd.COVERAGE, "call", broken(), NOT_CAPTURED))
    return [*compilation.records(), *events]


def broken() -> str:
    """Why Dynamo made no graph of a call, in its own words."""
    reasons = [" ".join(reason.split("\n")[0].split()) for reason in counters["graph_break"]]
    return reasons[0] if reasons else "no graph was made of it"


def raised(where: str, error: Exception) -> Event:
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    detail = f"{type(error).__name__}: {said} ({Path(place.filename).name}:{place.lineno} in {place.name})"
    return Event(DeadEnd.MAINTENANCE, where, detail, RAISED)


def _is_bad(record: Record) -> bool:
    return isinstance(record, Event) and record.kind in (WRONG, RAISED)


def summed(name: str, records: Sequence[Record]) -> list[Record]:
    """Nodes by way, of the generated ones only their number; events alike as one, without what is particular to one."""
    nodes: Counter[tuple[Way, str]] = Counter()
    counts: Counter[Event] = Counter()
    for record in records:
        if isinstance(record, Placement):
            nodes[record.way, MANY if record.way is Way.GENERATED else record.op] += record.nodes
        if isinstance(record, Event):
            detail = record.detail.splitlines()[0][:KEPT_DETAIL] if record.detail else ""
            bare = Event(record.dead_end, record.op, detail, record.kind, backend=record.backend, model=name)
            counts[bare] += record.count
    placements = [Placement(op, way, number, model=name) for (way, op), number in sorted(nodes.items())]
    return [*placements, *(replace(event, count=number) for event, number in counts.items())]
