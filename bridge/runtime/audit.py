"""What a step really dispatched: every ATen call that no program declared is named, with its line."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bridge.ir.compiled import CompiledGraph, Way
from bridge.ir.nodes import READS
from bridge.ir.provenance import frame_line, is_own
from bridge.runtime.compiled import LIVE

aten = torch.ops.aten

ALLOCATIONS = frozenset(
    {
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_permuted.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }
)
"""Overloads that give memory and compute nothing."""

_TORCH = torch.__path__[0]
_WRAPPERS = f"{_TORCH}/_functorch/_aot_autograd/"
_AUTOGRAD = torch.autograd.__file__
_DISPATCH = {f"{_TORCH}/{name}.py" for name in ("_compile", "_dynamo/eval_frame", "_ops", "utils/_python_dispatch")}


@dataclass(frozen=True)
class Uncaptured:
    """ATen calls that ran outside of every program, or that a program made without declaring them.

    op: the overload. source: the user's line that was running; a backward has the line that called it.
    """

    op: str
    count: int
    source: str


@dataclass(frozen=True)
class Audit:
    """What one step ran, counted at run time.

    kernels: generated kernels that were called. library, fallback: declared ATen calls by overload.
    engine: what torch's own machinery ran around the programs: mutated tensors copied back, gradients accumulated.
    uncaptured: the rest. missing: calls that were declared and not seen, by overload.
    """

    kernels: int
    library: Mapping[str, int]
    fallback: Mapping[str, int]
    engine: Mapping[str, int]
    uncaptured: tuple[Uncaptured, ...]
    missing: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Whether everything that computed was declared, and something was."""
        compiled = self.kernels or self.library or self.fallback
        return bool(compiled) and not self.uncaptured and not self.missing

    def __str__(self) -> str:
        lines = [f"generated kernels called: {self.kernels}"]
        for name, calls in (("library", self.library), ("fallback", self.fallback), ("torch's engine", self.engine)):
            lines.append(f"{name}: {_counted(calls)}")
        lines.append(f"uncaptured: {sum(item.count for item in self.uncaptured)}")
        lines += [f"  {item.count:4d} {item.op}  {item.source}".rstrip() for item in self.uncaptured]
        lines += [f"declared but not seen: {_counted(self.missing)}"] if self.missing else []
        return "\n".join(lines)


def audit(step: Callable[..., Any], *args: Any, **kwargs: Any) -> Audit:
    """Run a step twice, once so that everything is compiled and once to count what it dispatches.

    The natural step is the call of a compiled object and the backward of its result. A loss or an optimizer outside of
    what was compiled is uncaptured, and is named as such.
    """
    step(*args, **kwargs)
    graphs = [graph for compilation in LIVE for graph in compilation.graphs]
    before = [graph.runs[0] for graph in graphs]
    with _Recorder([graph.run.__code__ for graph in graphs]) as recorder:  # type: ignore[attr-defined]
        step(*args, **kwargs)
    ran = [(graph, graph.runs[0] - earlier) for graph, earlier in zip(graphs, before)]
    return _compared([(graph, times) for graph, times in ran if times], recorder)


def _compared(ran: Sequence[tuple[CompiledGraph, int]], recorder: _Recorder) -> Audit:
    """ran: the compiled graphs and how often each ran."""
    declared = {Way.LIBRARY: Counter[str](), Way.FALLBACK: Counter[str]()}
    for graph, times in ran:
        for callout in graph.callouts:
            for op, count in callout.ops.items():
                declared[callout.way][op] += count * times
    wanted = declared[Way.LIBRARY] + declared[Way.FALLBACK]
    extra = recorder.inside - wanted - recorder.inside_views
    undeclared = [Uncaptured(op, n, "inside a program") for op, n in sorted(extra.items())]
    outside = [Uncaptured(op, count, source) for (op, source), count in recorder.outside.most_common()]
    return Audit(
        kernels=sum(graph.kernel_calls * times for graph, times in ran),
        library=dict(declared[Way.LIBRARY]),
        fallback=dict(declared[Way.FALLBACK]),
        engine=dict(recorder.engine),
        uncaptured=tuple(outside + undeclared),
        missing=dict(wanted - recorder.inside),
    )


class _Recorder(TorchDispatchMode):
    """Counts computing ATen calls: those inside a program's run, those of torch's engine, and all others by line."""

    def __init__(self, programs: Sequence[CodeType]) -> None:
        super().__init__()
        self._programs = {id(code) for code in programs}  # by identity: code that Dynamo writes may have no hash
        self.inside: Counter[str] = Counter()
        self.inside_views: Counter[str] = Counter()
        self.engine: Counter[str] = Counter()
        self.outside: Counter[tuple[str, str]] = Counter()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this, Dynamo would skip every frame while the mode is active, and nothing compiled would run."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._count(str(func), _computes(func))
        return func(*args, **(kwargs or {}))

    def _count(self, op: str, computes: bool) -> None:
        frames = [frame for frame in _frames(sys._getframe(2)) if not _is_dispatch(frame)]
        if any(id(frame.f_code) in self._programs for frame in frames):
            self.inside[op] += 1
            self.inside_views += Counter() if computes else Counter([op])
        elif not computes:
            return
        elif _is_engines(frames):
            self.engine[op] += 1
        else:
            self.outside[op, _line(frames)] += 1


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames from the innermost to the outermost."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_dispatch(frame: FrameType) -> bool:
    """Frames by which a call reaches the mode: they are between whoever made the call and us."""
    return frame.f_code.co_filename in _DISPATCH


def _is_engines(frames: list[FrameType]) -> bool:
    """Whether AOTAutograd's wrappers, the seed of a backward, or autograd itself made the call.

    Autograd accumulates gradients, and gives zeros to a compiled backward for a result of which no gradient is known.
    """
    if type(torch._C._current_autograd_node()).__name__ in ("AccumulateGrad", "CompiledFunctionBackward"):
        return True
    if not frames:  # the engine's own thread for a GPU, in which no Python is on the way
        return False
    code = frames[0].f_code
    return code.co_filename.startswith(_WRAPPERS) or (code.co_name == "_make_grads" and code.co_filename == _AUTOGRAD)


def _line(frames: list[FrameType]) -> str:
    """The innermost line that is neither torch's nor ours."""
    for frame in frames:
        filename = frame.f_code.co_filename
        if not filename.startswith(_TORCH) and not is_own(filename) and not filename.startswith("<"):
            return frame_line(traceback.StackSummary.extract([(frame, frame.f_lineno)]))
    return ""


def _computes(func: Any) -> bool:
    """Whether a call does more than look at memory, allocate it, give a number in it to Python, or mark a span."""
    if func in ALLOCATIONS or func in READS or func.namespace == "profiler":
        return False
    returns = func._schema.returns
    views = returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    return not views and func is not aten._unsafe_view.default


def _counted(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {op}" for op, count in sorted(calls.items(), key=lambda i: (-i[1], i[0]))) or "none"
