"""Run a program as a CUDA graph: recorded once it is warm, then replayed with one call for all of its kernels.

A recording reads and writes the same memory each time. Parameters, buffers and what a forward pass saved are read where
they lie; other inputs are copied to where the recording reads them. Results are given out as tensors over the memory of
the recording, and it is replayed only when nobody holds the last ones: as long as somebody does, as when a model is
called twice before its backward pass, the program runs as it is, in fresh memory. Small results are the user's to keep
(losses in a list), so they are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bridge.backends.tvm.tensors import on_its_device
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Boxed, Graph, Role
from bridge.ir.nodes import draws
from bridge.ir.shapes import is_size, symbols_of, tensors_of
from bridge.ledger import DeadEnd, Event, Ledger

WARM = 2
"""Runs before the recording: libraries choose their kernels, and modules are loaded."""

SMALL = 1 << 20
"""Bytes up to which a result of the user's is copied out of the recording."""

RECORDINGS = 4
"""How often a program is recorded anew, when its parameters have moved, before it is left alone."""

IN_PLACE = (Role.PARAMETER, Role.BUFFER, Role.SAVED)

Record = Callable[[Callable[[], Sequence[Any]]], tuple[Sequence[Any], Callable[[], None]]]
"""Runs a function while it is recorded: its results, and what computes them again into the same memory."""


def replayed(compiled: CompiledGraph, ledger: Ledger) -> CompiledGraph:
    """The compiled graph, replayed from its third run on; as it is, with an event, where it cannot be recorded."""
    reason = unfit(compiled.graph)
    if reason is not None:
        ledger.record(_event(compiled.graph, reason))
        return compiled
    return replace(compiled, run=on_its_device(Replay(compiled, ledger, recorded), compiled.graph.device))


def unfit(graph: Graph) -> str | None:
    """Why a graph cannot be recorded."""
    for node in graph.nodes:
        if is_size(node) or symbols_of(node):
            return "sizes may change from run to run"
        if node.op == "call_function" and draws(node):
            return f"{node.name} draws random numbers"
        if any(tensor.device.type == "cpu" for tensor in tensors_of(node)):
            return f"{node.name} has a tensor on the CPU"
    return None


def recorded(function: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
    """A CUDA graph of a function."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()
    return results, graph.replay


class Replay:
    """A program that is recorded and replayed. Boxed, as the program is.

    borrow: the tensor by which a recording reads what is not its own. It goes when the recording is made, since whoever
    owns the memory has to be able to tell that nobody needs it any more.
    """

    def __init__(
        self,
        compiled: CompiledGraph,
        ledger: Ledger,
        record: Record,
        borrow: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach,
    ) -> None:
        self._run: Boxed = compiled.run
        self._borrow = borrow
        self._compiled, self._ledger, self._record = compiled, ledger, record
        self._in_place = [role in IN_PLACE for role in compiled.graph.inputs]
        self._warm, self._left = 0, RECORDINGS
        self._given_up = ""
        self._told: set[str] = set()
        self._inputs: list[Any] = []
        self._places: list[int] = []
        self._results: Sequence[Any] = ()
        self._passed_on: list[int | None] = []
        self._held: list[StorageWeakRef] = []
        self._replay: Callable[[], None] | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._warm < WARM:
            self._warm += 1
            return self._run(args)
        if self._given_up:
            return self._launched(args, self._given_up)
        if self._is_held():
            return self._launched(args, "results of the last replay are held while it is called again")
        if self._replay is None or self._moved(args):
            if not self._left:
                self._given_up = f"its parameters have moved {RECORDINGS} times"
                return self._launched(args, self._given_up)
            return self._recorded(args)
        for place, given in enumerate(args):
            if not self._in_place[place] and given.data_ptr() != self._places[place]:
                self._inputs[place].copy_(given)
        self._compiled.runs[0] += 1
        self._replay()
        return self._given_out(args)

    def _launched(self, args: list[Any], reason: str) -> Sequence[Any]:
        """Run the program step by step. A reason is an event, once."""
        if reason not in self._told:
            self._told.add(reason)
            self._ledger.record(_event(self._compiled.graph, reason))
        return self._run(args)

    def _is_held(self) -> bool:
        """Whether somebody still holds a result of the last replay."""
        self._held = [reference for reference in self._held if not reference.expired()]
        return bool(self._held)

    def _moved(self, args: Sequence[Any]) -> bool:
        pairs = zip(args, self._places, self._in_place, strict=True)
        return any(fixed and given.data_ptr() != place for given, place, fixed in pairs)

    def _recorded(self, args: list[Any]) -> Sequence[Any]:
        """Record, and let the recording compute this call's results."""
        self._left -= 1
        self._replay, self._results = None, ()
        pairs = zip(args, self._in_place, strict=True)
        inputs = [self._borrow(given) if fixed else given.detach().clone() for given, fixed in pairs]
        self._places = [given.data_ptr() for given in inputs]
        try:
            results, self._replay = self._record(lambda: self._run(list(inputs)))
        except RuntimeError as error:  # a call-out that waits for the GPU, or asks it for memory of its own
            self._given_up = str(error).splitlines()[0]
            return self._launched(args, self._given_up)
        at = {id(given): place for place, given in enumerate(inputs) if self._in_place[place]}
        self._passed_on = [at.get(id(result)) for result in results]
        self._results = [None if place is not None else r for r, place in zip(results, self._passed_on, strict=True)]
        self._inputs = [None if fixed else given for given, fixed in zip(inputs, self._in_place, strict=True)]
        self._replay()
        return self._given_out(args)

    def _given_out(self, args: list[Any]) -> Sequence[Any]:
        """The results of a replay. An input that is passed on is the caller's own tensor, with its count of changes."""
        given = [None if place is None else args[place] for place in self._passed_on]
        args.clear()
        triples = zip(self._results, self._compiled.graph.outputs, given, strict=True)
        return [self._one(result, role) if own is None else own for result, role, own in triples]

    def _one(self, result: Any, role: Role) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        if role is Role.OUTPUT and result.numel() * result.element_size() <= SMALL:
            return result.clone()
        given = torch.from_dlpack(result)
        self._held.append(StorageWeakRef(given.untyped_storage()))
        return given


def _event(graph: Graph, reason: str) -> Event:
    return Event(
        DeadEnd.MAINTENANCE,
        op="reduce-overhead",
        detail=f"the program is not run as a CUDA graph: {reason}",
        kind="not recorded",
        graph=graph.name,
        phase=graph.phase.value,
    )
