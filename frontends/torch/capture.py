"""Run AOTAutograd under torch.compile and keep what it gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx

from bridge.frontends.torch.adapters import Adapter, adapter_for, series_of
from bridge.frontends.torch.aliasing import (
    Unfit,
    check_inputs,
    check_results,
    with_detached_results,
)
from bridge.frontends.torch.marks import hints, marked_inputs, marked_sizes, with_marked_results
from bridge.frontends.torch.masks import drop_masks
from bridge.frontends.torch.record import CaptureRecord
from bridge.frontends.torch.roles import FrameInput, frame_inputs, input_roles, output_roles
from bridge.frontends.torch.sized import keep_sizes
from bridge.frontends.torch.undefined import Reached, reached_results, with_missing_gradients
from bridge.frontends.torch.values import check_sizes, check_squeezes, complete_values
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Boxed, Graph, JointGraph, Phase, copied
from bridge.ledger import DeadEnd, Event, Ledger

CompileGraph = Callable[[Graph], CompiledGraph]

_FRAMES = itertools.count()


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
        self._decompositions = dict(decompositions)
        self._split = split
        self._keep_joint = keep_joint
        self._numbers = itertools.count()
        self._record = CaptureRecord(ledger)
        self._reached: dict[str, Reached | None] = {}
        self._sizes: set[int] = set()
        self._within = False
        self._shared: dict[str, Any] = {}
        self.adapter = _adapter(torch_version, ledger)

    def compile(
        self,
        function: Callable[..., Any],
        dynamic: bool | None = None,
        guard_hooks: bool = True,
        backend: Callable[..., Any] | str | None = None,
        read_values: bool = False,
    ) -> Callable[..., Any]:
        """The function, captured and compiled at its first call and whenever a guard of torch's fails.

        guard_hooks: compile again when a module's hooks change. backend: another one of torch.compile's than ours.
        read_values: keep in the graph what reads numbers or sizes out of tensors.
        """
        made, frame = backend or self.backend, own_frame(function)
        return self.adapter.compile(
            frame, made, dynamic, self._record, guard_hooks, read_values, self._begins, self._follows
        )

    def _begins(self, frame: Any) -> None:
        """Remember which sizes are dynamic, for the case that the graph breaks before anything is captured."""
        self._within = False
        self._sizes.update(marked_sizes(frame.f_locals, self.adapter.dynamic_dims))

    def _follows(self, frame: Any) -> AbstractContextManager[list[str]]:
        """Say of what a frame behind a graph break is given that it is dynamic, if a graph had symbolic sizes."""
        self._within = True
        if not self._sizes:
            return nullcontext([])
        return marked_inputs(frame, self._sizes, self.adapter.mark_dynamic)

    def _remember_sizes(self, examples: Sequence[Any]) -> None:
        """What symbols stand for, but for those of a frame that torch has seen called with several sizes by itself.

        A function that a model calls several times, each time with another size, says nothing of the model's input.
        """
        if self._sizes or not self._within:
            self._sizes.update(hints(examples))

    def backend(self, module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo calls with each graph. Compiles forward and backward, or the inference graph."""
        check_squeezes(module)
        name = f"graph_{next(self._numbers)}"
        self._record.recompiled(name)
        self._remember_sizes(examples)
        broken = self.adapter.graph_break(module, self._record.breaks)
        if broken is not None:
            self._record.graph_broken(name, broken)
        frame = frame_inputs(module, examples)
        aot = self.adapter.aot(
            fw_compiler=self._compiler(name, frame, Phase.FORWARD),
            bw_compiler=self._compiler(name, frame, Phase.BACKWARD),
            inference_compiler=self._compiler(name, frame, Phase.INFERENCE),
            partition_fn=self._splitter(name, frame),
            decompositions=self._decompositions,
        )
        try:
            check_results(module)
            drop_masks(module)
            keep_sizes(module)
            with self.adapter.rnn_tracing(module):
                run = with_detached_results(module, aot(module, examples))
                if broken is not None:
                    run = with_marked_results(module, run)
                reached = self._reached.get(name)
                return run if reached is None else with_missing_gradients(run, reached)
        except Unfit as reason:
            self._record.left_out(name, str(reason), module)
            return module.forward

    def _compiler(self, name: str, frame: Sequence[FrameInput], phase: Phase) -> Callable[..., Boxed]:
        def compiler(module: fx.GraphModule, examples: Sequence[Any]) -> Boxed:
            if phase is not Phase.BACKWARD:
                check_inputs(module)
            check_sizes(module)
            complete_values(module)
            roles, names = input_roles(module, frame)
            graph = Graph(name, phase, module, roles, output_roles(module), names, shared=self._shared)
            self._record.mutated(graph, frame)
            return boxed(self._compile_graph(graph).run)

        return compiler

    def _splitter(self, name: str, frame: Sequence[FrameInput]) -> Callable[..., tuple[Any, Any]]:
        def split(module: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **more: Any) -> tuple[Any, Any]:
            roles, names = input_roles(module, frame)
            outputs = output_roles(module)
            joint = JointGraph(
                name, Phase.JOINT, copied(module), roles, outputs, names, forward_outputs=num_fwd_outputs
            )
            self._keep_joint(joint)
            self._record.linked(joint)
            self._reached[name] = reached_results(joint)
            with self.adapter.splitting(module):
                return self._split(module, inputs, num_fwd_outputs=num_fwd_outputs, **more)

        return split


def own_frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside a frame whose code is this compilation's alone.

    Dynamo keeps what it compiles by code object, up to a limit; a module's `__call__` is one code for all modules. And
    it keeps which sizes have changed by the name of the code and its place: another model's sizes are no change.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_name=f"call_{next(_FRAMES)}")
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
