"""Run a program as a CUDA graph: recorded once it is warm, then replayed with one call for all of its kernels.

A recording reads and writes the same memory each time. Parameters, buffers, an optimizer's state and what a forward
pass saved are read where they lie, and updated there. It is made when all of these lie where they lay at the call
before. Other inputs are copied to where the recording reads them, but those that have lain still up to then, such as
the gradient of a loss or a batch that is always laid in the same memory, are read there too, until one of them moves.

Results are given out as tensors over the memory of the recording, and it is replayed only when nobody holds the last
ones: as long as somebody does, as when a model is called twice before its backward pass, the program runs as it is, in
fresh memory. Small results are the user's to keep (losses in a list): the smallest are given from a ring of slots that
the recording fills (`ring.py`), others are copied. A forward and its backward share a pool of memory (`pool.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

import torch
from torch import fx

from bridge.backends.tvm.memory import clear_workspaces, holders, storage_of
from bridge.backends.tvm.moving import Moving
from bridge.backends.tvm.pool import Pool, over
from bridge.backends.tvm.ring import Ring
from bridge.backends.tvm.tensors import on_its_device
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Boxed, Graph, Phase, Role
from bridge.ir.shapes import is_size, symbols_of, tensors_of
from bridge.ledger import DeadEnd, Event, Ledger

WARM = 2
"""Runs before the recording: libraries choose their kernels, and modules are loaded."""

SMALL = 1 << 20
"""Bytes up to which a result of the user's is copied out of the recording."""

RECORDINGS = 4
"""How often a program is recorded anew, or waits for that, because what it reads has moved."""

IN_PLACE = (Role.PARAMETER, Role.BUFFER, Role.STATE, Role.SAVED)

Record = Callable[[Boxed, list[Any], Any], tuple[Sequence[Any], Callable[[], None]]]
"""Runs a program while it is recorded in a pool: its results, and what computes them again into the same memory."""


def replayed(compiled: CompiledGraph, ledger: Ledger) -> CompiledGraph:
    """The compiled graph, replayed from its third run on; as it is, with an event, where it cannot be recorded."""
    reason = unfit(compiled.graph)
    if reason is not None:
        ledger.record(_event(compiled.graph, reason))
        return compiled
    pool = compiled.graph.shared.setdefault(compiled.graph.name, Pool())
    return replace(compiled, run=on_its_device(Replay(compiled, ledger, pool), compiled.graph.device))


def unfit(graph: Graph) -> str | None:
    """Why a graph cannot be recorded."""
    if holders is None:
        return "this torch does not tell who holds a result"
    for node in graph.nodes:
        if is_size(node) or symbols_of(node):
            return "sizes may change from run to run"
        if any(tensor.device.type == "cpu" for tensor in tensors_of(node)):
            return f"{node.name} has a tensor on the CPU"
    return None


def recorded(run: Boxed, inputs: list[Any], pool: Any) -> tuple[Sequence[Any], Callable[[], None]]:
    """A CUDA graph of a program. What it draws at random is drawn anew at each replay, as eager would go on."""
    graph = torch.cuda.CUDAGraph()
    clear_workspaces()
    with torch.cuda.graph(graph, pool=pool):
        results = run(inputs)
    clear_workspaces()
    return results, graph.replay


class Replay:
    """A program that is recorded and replayed. Boxed, as the program is.

    borrow: the tensor by which a recording reads what is not its own. It goes when the recording is made, since whoever
    owns the memory has to be able to tell that nobody needs it any more. over: a tensor over memory that it does not
    keep, unless it is given what keeps it.
    """

    def __init__(
        self,
        compiled: CompiledGraph,
        ledger: Ledger,
        pool: Pool,
        record: Record = recorded,
        borrow: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach,
        over: Callable[..., torch.Tensor] = over,
    ) -> None:
        graph = compiled.graph
        self._run: Boxed = compiled.run
        self._compiled, self._ledger, self._record, self._borrow, self._over = compiled, ledger, record, borrow, over
        self._pool = pool if pool.join(self, graph.phase) else None
        self._lock = RLock() if self._pool is None else pool.lock
        self._is_forward = graph.phase is Phase.FORWARD
        self._written = sorted({at for at in graph.targets if at is not None})
        held = [role in IN_PLACE or at in self._written for at, role in enumerate(graph.inputs)]
        self._still = [at for at, stays in enumerate(held) if stays]
        self._moving = Moving([at for at, stays in enumerate(held) if not stays])
        self._roles = [r for r, at in zip(graph.outputs, graph.targets or [None] * len(graph.outputs)) if at is None]
        self._warm, self._left = 0, RECORDINGS
        self._given_up = ""
        self._told: set[str] = set()
        self._last: list[int] = []
        self.forget()

    def forget(self) -> None:
        """Let go of the recording, if there is one, and of its memory."""
        self._places: list[int] | None = None
        self._replay: Callable[[], None] | None = None
        self._moving.clear()
        self._rings: dict[int, Ring] = {}
        self._passed_on: list[tuple[int, int]] = []
        self._keep([])

    def start_over(self) -> None:
        """Let go of the recording, and be as free to make others as at first."""
        self._left = RECORDINGS
        self.forget()

    def _keep(self, memory: Sequence[Any], others: Collection[int] = ()) -> None:
        """Hold the results of a recording, but those that lie in the storages of others: what is given out of them."""
        self._memory = list(memory)
        self._gives = [given_out(result, role) for result, role in zip(self._memory, self._roles)]
        for at, ring in self._rings.items():
            self._gives[at] = ring.give
        made = (storage_of(result) for result in self._memory if isinstance(result, torch.Tensor))
        self._storages = [storage for storage in made if storage not in others]
        self._counts: list[int] = list(map(holders, self._storages))

    def is_unheld(self) -> bool:
        """Whether nobody holds what the last replay gave."""
        return list(map(holders, self._storages)) == self._counts

    def saves(self) -> dict[int, int]:
        """The storages of what is saved for a backward and given to nobody else; how many hold each if nobody does."""
        given = [(r, role) for r, role in zip(self._memory, self._roles) if isinstance(r, torch.Tensor)]
        others = {storage_of(result) for result, role in given if role is not Role.SAVED}
        saved = {storage_of(result) for result, role in given if role is Role.SAVED} - others
        return {storage: count for storage, count in zip(self._storages, self._counts) if storage in saved}

    def let_go(self) -> dict[int, int]:
        """Keep what is saved no longer, but know where it lies: as `saves`, of the storages over it."""
        saved = self.saves()
        moved = [isinstance(r, torch.Tensor) and storage_of(r) in saved for r in self._memory]
        others = {storage_of(r) for r in self._memory if isinstance(r, torch.Tensor)}.difference(self._storages)
        unheld = dict(zip(self._storages, self._counts))  # others may be held just now
        self._keep([self._over(r) if moves else r for r, moves in zip(self._memory, moved)], others)
        self._counts = [unheld.get(storage, count) for storage, count in zip(self._storages, self._counts)]
        over = {storage_of(r) for r, moves in zip(self._memory, moved) if moves}
        return {storage: count for storage, count in zip(self._storages, self._counts) if storage in over}

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Replay, or run the program; one thread after the other, since its memory is one."""
        with self._lock:
            return self._called(args)

    def _called(self, args: list[Any]) -> Sequence[Any]:
        if self._given_up:
            return self._launched(args, self._given_up)
        if not self.is_unheld():
            return self._launched(args, "results of the last replay are held while it is called again")
        places = [args[at].data_ptr() for at in self._still]
        if places != self._places or self._replay is None:
            return self._moved(args, places)
        if self._pool is not None and self._pool.destroys(self._compiled.graph.phase):
            return self._set_apart(args)
        if not self._moving.lie_still(args):
            return self._stirred(args)
        self._moving.fill(args)
        return self._replayed(args, self._replay)

    def _replayed(self, args: list[Any], replay: Callable[[], None]) -> Sequence[Any]:
        """Replay, and give out the results. An input that is passed on is the caller's own tensor."""
        self._compiled.runs[0] += 1
        for ring in self._rings.values():
            ring.turn()
        replay()
        if self._written:
            torch.autograd.graph.increment_version([args[at] for at in self._written])
        results = [give() for give in self._gives]
        for position, at in self._passed_on:
            results[position] = args[at]
        args.clear()
        return results

    def _set_apart(self, args: list[Any]) -> Sequence[Any]:
        """Run as it is where a replay would destroy what is held: for a forward this once, and then in its own pool."""
        if self._is_forward:
            return self._run(args)
        return self._launched(args, "what the forward saved is held while its backward runs")

    def _launched(self, args: list[Any], reason: str) -> Sequence[Any]:
        """Run the program step by step. A reason is an event, once."""
        if reason not in self._told:
            self._told.add(reason)
            self._ledger.record(_event(self._compiled.graph, reason))
        return self._run(args)

    # Recording -------------------------------------------------------------------------------------------------------

    def _moved(self, args: list[Any], places: list[int]) -> Sequence[Any]:
        """Record where everything lies as it did at the last call, else run the program as it is."""
        settled, self._last = places == self._last, places
        self._moving.see(args)
        if self._warm < WARM:
            self._warm += 1
            return self._run(args)
        if not self._left:
            self._given_up = f"what it reads has moved {RECORDINGS} times"
            return self._without(lambda: self._launched(args, self._given_up))
        self._left -= 1
        if settled and self._replay is not None and self._pool is not None:
            return self._without(lambda: self._run(args))
        return self._recorded(args, places) if settled else self._run(args)

    def _stirred(self, args: list[Any]) -> Sequence[Any]:
        """Run where an input has moved that was read where it lay. It is recorded anew, to be copied."""
        self._moving.distrust()
        results = self._run(args)
        self.start_over() if self._pool is None else self._pool.start_over()
        return results

    def _without(self, run: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """Run with no recording from now on. What is read may lie in one, which goes only then."""
        results = run()
        self.forget() if self._pool is None else self._pool.forget()
        return results

    def _recorded(self, args: list[Any], places: list[int]) -> Sequence[Any]:
        """Record, and let the recording compute this call's results."""
        self.forget()
        passing = self._passing(args)
        places = self._stopped(args, places)
        self._moving.arrange(args)
        in_place = [at for at in (*self._still, *self._moving.still) if at not in passing]
        inputs: list[Any] = list(args)
        for at in in_place:
            inputs[at] = self._borrow(args[at])
        for at, copy in self._moving.copies.items():
            inputs[at] = copy
        reads = {id(inputs[at]): (at, inputs[at]) for at in in_place}
        others = {storage_of(inputs[at]) for at in in_place}
        if self._pool is not None and self._is_forward:
            self._pool.note_copies(self._moving.copies.values())
        if passing:
            assert self._pool is not None
            args[:] = [self._over(value) if at in passing else value for at, value in enumerate(args)]
            self._pool.give_back()
        self._rings = self._small_results()
        try:
            results, replay = self._record(self._filling, inputs, None if self._pool is None else self._pool.handle())
        except RuntimeError as error:  # a call-out that waits for the GPU, or asks it for memory of its own
            self._given_up = str(error).splitlines()[0]
            self._rings = {}
            self._moving.clear()
            return self._launched(args, self._given_up)
        self._passed_on = [(n, reads[id(result)][0]) for n, result in enumerate(results) if id(result) in reads]
        passed = {n for n, _ in self._passed_on}
        memory = [None if n in passed else result for n, result in enumerate(results)]
        del results
        self._keep(memory, others)
        del memory
        self._places, self._replay = places, replay
        return self._replayed(args, replay)

    def _small_results(self) -> dict[int, Ring]:
        """For each result of one element that is the user's, the ring that it is given from."""
        device, rings = self._compiled.graph.device, {}
        for n, (value, role) in enumerate(zip(self._compiled.graph.returned, self._roles)):
            is_made = isinstance(value, fx.Node) and role is Role.OUTPUT and value.op != "placeholder"
            example = value.meta["val"] if is_made else None
            if isinstance(example, torch.Tensor) and example.numel() == 1 and example.layout is torch.strided:
                rings[n] = Ring(example, device, self._over)
        return rings

    def _filling(self, args: list[Any]) -> Sequence[Any]:
        """Run the program, and put into the rings what belongs there: what is recorded."""
        results = self._run(args)
        for n, ring in self._rings.items():
            ring.write(results[n])
        return results

    def _stopped(self, args: list[Any], places: list[int]) -> list[int]:
        """The places, with those of inputs of a backward that are what its forward's recording copied: they stay."""
        if self._pool is None or self._is_forward:
            return places
        stay = [at for at in self._moving.positions if self._pool.has_copy(args[at])]
        self._still += stay
        self._moving.stop(stay)
        return places + [args[at].data_ptr() for at in stay]

    def _passing(self, args: list[Any]) -> frozenset[int]:
        """The inputs whose memory the recording may use once it has read them."""
        if self._pool is None or self._compiled.graph.phase is not Phase.BACKWARD:
            return frozenset()
        return frozenset(self._pool.passing(args, self._still))


def given_out(result: Any, role: Role) -> Callable[[], Any]:
    """What makes of a recording's result the one that is given to the caller."""
    if not isinstance(result, torch.Tensor):
        return lambda: result
    small = role is Role.OUTPUT and result.numel() * result.element_size() <= SMALL
    return result.clone if small else result.detach


def _event(graph: Graph, reason: str) -> Event:
    return Event(
        DeadEnd.MAINTENANCE,
        op="reduce-overhead",
        detail=f"the program is not run as a CUDA graph: {reason}",
        kind="not recorded",
        graph=graph.name,
        phase=graph.phase.value,
    )
