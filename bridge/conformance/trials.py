"""Give an importer the calls of one overload and variants of them, and say what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch._ops import OpOverload

from bridge.backends.tvm.table import table
from bridge.conformance.agreement import disagreement, tensors
from bridge.conformance.calls import Call, calls_by_type
from bridge.conformance.importers import Importer
from bridge.conformance.together import Together
from bridge.conformance.variants import extents, layouts, only_one_kind, specials
from bridge.ledger import End, Trial

OF_EACH_TYPE = 1
"""Calls of an overload in each type."""

SAMPLE, SPECIAL, EXTENT, LAYOUT = "sample", "special values", "no elements or dimensions", "other layout"
"""What is changed of a call."""

FLOATS = (torch.float64, torch.bfloat16, torch.float16)
"""The types that calls in float32 are made in too, where torch's samples have none."""

KEPT_DETAIL = 240
"""Characters of a reason that are kept."""


@dataclass(frozen=True)
class Try:
    """A call that is given to an importer. type_name: the type that it is one in."""

    call: Call
    type_name: str
    variant: str = SAMPLE


def trials(op: OpOverload, name: str, importer: Importer) -> list[Trial]:
    """What becomes of an overload's calls at an importer of that name."""
    tried = tries(op)
    counts: Counter[tuple[str, str, End]] = Counter()
    details: dict[tuple[str, str, End], str] = {}
    for one, (end, detail) in zip(tried, ends(tried, importer), strict=True):
        alike = one.type_name, one.variant, end
        counts[alike] += 1
        details.setdefault(alike, " ".join(detail.split())[:KEPT_DETAIL])
    return [Trial(str(op), name, alike[2], n, *alike[:2], details[alike]) for alike, n in counts.items()]


def tries(op: OpOverload) -> list[Try]:
    """The calls of an overload in every type, and of the first in each float type its variants; those torch takes."""
    found = {name: [Try(call, name) for call in calls] for name, calls in calls_by_type(op, OF_EACH_TYPE).items()}
    for dtype in FLOATS:
        name = str(dtype).removeprefix("torch.")
        if name not in found:
            found[name] = [Try(_in_type(one.call, dtype), name) for one in found.get("float32", ())]
    made = [one for of_type in found.values() for one in of_type]
    made += [variant for of_type in found.values() for variant in _variants(of_type[:1])]
    return [one for one in made if _is_taken(one.call)]


def _in_type(call: Call, dtype: torch.dtype) -> Call:
    return call.mapped(lambda t: t.to(dtype) if t.is_floating_point() else t)


def _variants(first: Sequence[Try]) -> Iterator[Try]:
    for one in first:
        if one.type_name == "float32":
            for special in (*specials(one.call), *only_one_kind(one.call)):
                yield Try(special, one.type_name, SPECIAL)
            for layout in layouts(one.call):
                yield Try(layout, one.type_name, LAYOUT)
        row = table().get(one.call.op)
        if row is not None and row.promote is not None:
            for extent in extents(one.call):
                yield Try(extent, one.type_name, EXTENT)


def _is_taken(call: Call) -> bool:
    """Whether torch has a result of the call, and the same with memory and without: of that type, of those sizes."""
    try:
        made, without_memory = tensors(call()), Together([call]).described()
    except Exception:  # of an op's own choice
        return False
    return [(t.dtype, tuple(t.shape)) for t in made] == without_memory


def ends(tried: Sequence[Try], importer: Importer) -> list[tuple[End, str]]:
    """The end of each try and the reason. All are given as one graph; one that does not come through is halved."""
    if not tried:
        return []
    together = Together([one.call for one in tried])
    module, inputs = together.graph().module, together.inputs
    end = End.REFUSED
    try:
        run = importer(module, inputs)
        end = End.RAISED
        results = list(run(inputs))
        if len(results) != len(module.graph.output_node().args[0]):  # type: ignore[arg-type]
            raise RuntimeError(f"{len(results)} results of {len(tried)} calls")
    except Exception as error:  # whatever an importer raises
        if len(tried) == 1:
            return [(end, f"{type(error).__name__}: {error}")]
        half = len(tried) // 2
        return ends(tried[:half], importer) + ends(tried[half:], importer)
    return [_compared(one.call, got) for one, got in zip(tried, together.by_call(results), strict=True)]


def _compared(call: Call, got: list[torch.Tensor]) -> tuple[End, str]:
    wrong = disagreement(call, got)
    return (End.WRONG, wrong) if wrong else (End.RIGHT, "")


def worst(of_op: Iterable[Trial]) -> End:
    """How an overload ends: as the worst of its calls does, refused if all of them are."""
    found = {one.end for one in of_op}
    bad = next((end for end in (End.CRASHED, End.WRONG, End.RAISED) if end in found), None)
    return bad or (End.RIGHT if End.RIGHT in found else End.REFUSED)
