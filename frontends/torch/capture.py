"""Run AOTAutograd under torch.compile and keep what it gives."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from bridge.frontends.torch.adapters import Adapter, adapter_for, series_of
from bridge.frontends.torch.roles import FrameInput, frame_inputs, input_roles, mutations, output_roles
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Boxed, Graph, JointGraph, Phase
from bridge.ir.nodes import shapes_and_dtypes
from bridge.ir.provenance import code_line, frame_line, source_line
from bridge.ledger import DeadEnd, Event, Ledger

CompileGraph = Callable[[Graph], CompiledGraph]

_ABOUT_SIZES = re.compile(r"size mismatch|stride mismatch|size\(\)|stride\(\)|storage_offset\(\)|dynamic")
_OF_ANOTHER_COMPILATION = re.compile("BACKEND_MATCH|different backend")


class Capture:
    """One use of `torch.compile`: its graphs go through `compile_graph`, its surprises to the ledger.

    compile_graph: makes the program of a forward, a backward or an inference graph.
    decompositions: overload → how it is written as simpler ops. split: joint graph → forward and backward.
    keep_joint: is given each joint graph before it is split.
    """

    def __init__(
        self,
        compile_graph: CompileGraph,
        ledger: Ledger,
        *,
        decompositions: Mapping[Any, Callable[..., Any]],
        split: Callable[..., tuple[Any, Any]],
        keep_joint: Callable[[JointGraph], None] = lambda joint: None,
        torch_version: str = torch.__version__,
    ) -> None:
        self._compile_graph = compile_graph
        self._ledger = ledger
        self._decompositions = dict(decompositions)
        self._split = split
        self._keep_joint = keep_joint
        self._numbers = itertools.count()
        self._reasons: list[str] = []
        self._told: set[tuple[Any, ...]] = set()
        self.adapter = _adapter(torch_version, ledger)

    def compile(
        self,
        function: Callable[..., Any],
        dynamic: bool | None = None,
        guard_hooks: bool = True,
        backend: Callable[..., Any] | str | None = None,
    ) -> Callable[..., Any]:
        """The function, captured and compiled at its first call and whenever a guard of torch's fails.

        guard_hooks: compile again when a module's hooks change. backend: another one of torch.compile's than ours.
        """
        return self.adapter.compile(own_frame(function), backend or self.backend, dynamic, self, guard_hooks)

    def guard_failed(self, reason: str) -> None:
        if not _OF_ANOTHER_COMPILATION.search(reason):
            self._reasons.append(_first_lines(reason))

    def switched_off(self) -> None:
        detail = "Dynamo is switched off in this process: unset TORCHDYNAMO_DISABLE"
        self._ledger.record(Event(DeadEnd.COVERAGE, op="call", detail=detail, kind="uncaptured", phase="forward"))

    def limit_reached(self, frame: Any) -> None:
        """Dynamo has given a frame up, and says so only in a log."""
        reason = self._reasons[0] if self._reasons else "not told"
        self._reasons.clear()
        detail = f"compiled too often, new sizes run in eager from now on; the last reason: {reason}"
        self._record_uncaptured(DeadEnd.DYNAMIC_SHAPE, "recompile limit", detail, frame)

    def frame_skipped(self, frame: Any, reason: str) -> None:
        """A frame of torch's own runs as Python by design; what computes there is a module without children."""
        self._reasons.clear()
        module = frame.f_locals.get("self")
        is_leaf = isinstance(module, torch.nn.Module) and not list(module.children())
        if frame.f_code.co_filename == __file__ or (is_leaf and frame.f_code.co_name == "forward"):
            self._record_uncaptured(DeadEnd.COVERAGE, type(module).__name__ if is_leaf else "call", reason, frame)

    def _record_uncaptured(self, dead_end: DeadEnd, op: str, detail: str, frame: Any) -> None:
        code = frame.f_code
        key = (code.co_filename, code.co_firstlineno, op, detail)
        if key not in self._told:
            self._told.add(key)
            source = code_line(code)
            self._ledger.record(
                Event(dead_end, op, _first_lines(detail), kind="uncaptured", phase="forward", source=source)
            )

    def backend(self, module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls with each graph. Compiles forward and backward, or the inference graph."""
        name = f"graph_{next(self._numbers)}"
        self._note_graph_break(module, name)
        self._note_recompilation(name)
        frame = frame_inputs(module, examples)
        aot = self.adapter.aot(
            fw_compiler=self._compiler(name, frame, Phase.FORWARD),
            bw_compiler=self._compiler(name, frame, Phase.BACKWARD),
            inference_compiler=self._compiler(name, frame, Phase.INFERENCE),
            partition_fn=self._splitter(name, frame),
            decompositions=self._decompositions,
        )
        with self.adapter.rnn_tracing(module):
            return aot(module, examples)

    def _compiler(self, name: str, frame: Sequence[FrameInput], phase: Phase) -> Callable[..., Boxed]:
        def compiler(module: fx.GraphModule, examples: Sequence[Any]) -> Boxed:
            roles, names = input_roles(module, frame)
            graph = Graph(name, phase, module, roles, output_roles(module), names)
            self._note_mutations(graph, frame)
            return boxed(self._compile_graph(graph).run)

        return compiler

    def _splitter(self, name: str, frame: Sequence[FrameInput]) -> Callable[..., tuple[Any, Any]]:
        def split(module: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **more: Any) -> tuple[Any, Any]:
            roles, names = input_roles(module, frame)
            outputs = output_roles(module)
            self._keep_joint(JointGraph(name, Phase.JOINT, module, roles, outputs, names, num_fwd_outputs))
            return self._split(module, inputs, num_fwd_outputs=num_fwd_outputs, **more)

        return split

    def _note_graph_break(self, module: fx.GraphModule, name: str) -> None:
        broken = self.adapter.graph_break(module)
        if broken is not None:
            self._ledger.record(
                Event(
                    DeadEnd.COVERAGE,
                    op="graph break",
                    detail=_first_lines(broken.reason),
                    kind="uncaptured",
                    graph=name,
                    source=frame_line(broken.frames),
                )
            )

    def _note_recompilation(self, name: str) -> None:
        """Compiling a frame again for new sizes is a dead end; for another mode, type or branch it is a new program."""
        reasons, self._reasons = self._reasons, []
        if reasons and _ABOUT_SIZES.search(reasons[0]):
            self._ledger.record(
                Event(DeadEnd.DYNAMIC_SHAPE, op="frame", detail=reasons[0], kind="recompiled", graph=name)
            )

    def _note_mutations(self, graph: Graph, frame: Sequence[FrameInput]) -> None:
        for change in mutations(graph.module, frame):
            shapes, dtypes = shapes_and_dtypes([change.node.meta["val"]])
            self._ledger.record(
                Event(
                    DeadEnd.INPLACE_OPTIMIZER,
                    op=change.name or change.role.value,
                    detail=f"the {change.role.value} is changed in place: its new value is copied back after the graph",
                    kind="copied back",
                    graph=graph.name,
                    phase=graph.phase.value,
                    shapes=shapes,
                    dtypes=dtypes,
                    bytes=change.bytes,
                    source=source_line(change.node),
                    node=change.node.name,
                )
            )


def own_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside a frame whose code is this compilation's alone.

    Dynamo keeps what it compiles by code object, up to a limit; a module's `__call__` is one code for all modules.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace()
    return call


def boxed(run: Boxed) -> Boxed:
    """Tell AOTAutograd that the program empties the list of its inputs."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _adapter(version: str, ledger: Ledger) -> Adapter:
    adapter, exact = adapter_for(version)
    if not exact:
        detail = f"no adapter for torch {version}; the one for {adapter.series[-1]} is used"
        ledger.record(
            Event(DeadEnd.API_INSTABILITY, op=f"torch {series_of(version)}", detail=detail, kind="no adapter")
        )
    return adapter


def _first_lines(text: str, length: int = 300) -> str:
    """A reason of torch's on one line, without the pages of advice that follow it."""
    kept = " ".join(line.strip() for line in text.splitlines()[:4] if line.strip())
    return kept if len(kept) <= length else kept[: length - 1] + "…"
