"""The search for one kernel: MetaSchedule proposes orders of its loops, each is built and timed here.

TVM's own builder and runner start pools of processes with time limits of their own, and time kernels on TVM's threads.
This process is one that may die, and kernels run on the threads that they will run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tvm

from bridge.backends.tvm.codegen import compiled
from bridge.backends.tvm.compat import meta_schedule
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.schedule import cpu
from bridge.backends.tvm.schedule.axes import laid_out
from bridge.backends.tvm.schedule.emit import Code
from bridge.backends.tvm.schedule.nest import nest_of
from bridge.backends.tvm.schedule.parameters import Parameters, Scheduled
from bridge.backends.tvm.schedule.vector import width
from bridge.backends.tvm.tune.blocks import blocks_of
from bridge.backends.tvm.tune.finish import finished
from bridge.backends.tvm.tune.measure import Bench, Race

BATCH = 8
"""Proposals of one round, after which MetaSchedule is told how they did."""

FINALISTS = 3
"""Proposals that are compared with ours by turns."""

HOPELESS = 8
"""How many times as slow as ours a proposal is not compared with it."""

NAME = "kernel"


class Subject:
    """A kernel that is searched for: ours, and its blocks. Raises NotTunable.

    Memory to run it on and machine code are made when they are first asked for, since a program has many kernels.
    """

    def __init__(self, kernel: Kernel, made: Scheduled, target: Any, threads: int) -> None:
        self.blocks = blocks_of(kernel)
        self.made, self._target = made, target
        self._wanted = tvm.target.Target({**dict(target.export()), "num-cores": max(threads, 1)})
        self._variables = Parameters(laid_out(nest_of(kernel)), kernel.stored, Code(), {}, {}).variables
        self.module = tvm.IRModule({"main": self.blocks.function})

    @cached_property
    def bench(self) -> Bench:
        """Memory for its inputs and results."""
        return Bench(self.made.inputs, self.made.outputs)

    @cached_property
    def ours(self) -> Any:
        """The kernel by rules, in machine code."""
        return self.built(self.made.function)

    @property
    def weight(self) -> int:
        """Bytes that it reads and writes at least."""
        values = (*self.made.inputs, *self.made.outputs)
        return sum((value.reach.constant or 0) * width(value.dtype) for value in values)

    def built(self, function: Any) -> Any:
        """A kernel in machine code."""
        return compiled({NAME: function}, self._target)[NAME]

    def function(self, schedule: Any) -> Any:
        """A schedule's kernel. Raises what TVM raises."""
        return finished(schedule.mod["main"], self._variables, NAME, self.blocks.stores)

    @property
    def target(self) -> Any:
        """The hardware as MetaSchedule wants to be told of it: with the number of threads."""
        return self._wanted


@dataclass(frozen=True)
class Proposal:
    """A kernel that was proposed, in machine code too, and what it took."""

    seconds: float
    function: Any
    kernel: Any


@dataclass(frozen=True)
class Outcome:
    """trials: proposals that were run. function: the best that agrees with ours, if any. race: it against ours."""

    trials: int
    function: Any | None = None
    race: Race | None = None


def subject_of(kernel: Kernel, target: Any, threads: int) -> Subject:
    """Ours and the blocks of one kernel. Raises NotTunable."""
    return Subject(kernel, cpu.scheduled(kernel, NAME), target, threads)


def search(subject: Subject, folder: Path, known: Any | None, seed: int, goes_on: Callable[[int], bool]) -> Outcome:
    """Search until `goes_on`, asked with the number of trials before each of them, says no.

    folder: where the records lie. known: the best kernel so far, if there was a search before.
    """
    database = opened(folder)
    workload = database.commit_workload(subject.module)
    bound = HOPELESS * subject.bench.seconds(subject.ours)  # which warms up the memory that all run on
    best = [] if known is None else [_proposal(subject, known, float("inf"))]
    trials = 0
    for candidate, tell in _proposals(subject, database, seed):
        if not goes_on(trials):
            break
        trials += 1
        try:
            made = _proposal(subject, subject.function(candidate.sch), 3 * best[0].seconds if best else float("inf"))
        except Exception:  # whatever TVM says against a schedule
            tell(None)
            continue
        best = sorted([*best, made], key=lambda proposal: proposal.seconds)[:FINALISTS]
        record = (candidate.sch.trace, workload, [made.seconds], subject.target, candidate.args_info)
        database.commit_tuning_record(meta_schedule().database.TuningRecord(*record))
        tell(made.seconds)
    return _winner(subject, [one for one in best if one.seconds <= bound], trials)


def _proposal(subject: Subject, function: Any, bound: float) -> Proposal:
    """A kernel, built and timed; once only, where it takes longer than the bound."""
    kernel = subject.built(function)
    return Proposal(subject.bench.seconds(kernel, bound), function, kernel)


def opened(folder: Path) -> Any:
    """The database in a folder, an empty one if there is none."""
    folder.mkdir(exist_ok=True)
    return meta_schedule().database.JSONDatabase(str(folder / "workload.json"), str(folder / "records.json"))


def _proposals(subject: Subject, database: Any, seed: int) -> Iterator[tuple[Any, Callable[[float | None], None]]]:
    """Candidates, each with a function that is to be told its seconds, or None for one that cannot be run."""
    ms = meta_schedule()
    result = ms.runner.RunnerResult
    context = ms.TuneContext(
        subject.module,
        target=subject.target,
        space_generator=ms.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm"),
        search_strategy=ms.search_strategy.EvolutionarySearch(
            population_size=32, init_min_unmeasured=BATCH, genetic_num_iters=2
        ),
        task_name=NAME,
        rand_state=seed,
        num_threads=1,
    )
    context.pre_tuning(1 << 20, BATCH, context.generate_design_space(), database, ms.cost_model.RandomModel())
    try:
        while candidates := context.generate_measure_candidates():
            results: list[Any] = []
            for candidate in candidates:
                yield (
                    candidate,
                    lambda seconds: results.append(  # noqa: B023 (called before the next round)
                        result([seconds], None) if seconds is not None else result(None, "it cannot be run")
                    ),
                )
            context.notify_runner_results(candidates, results)
    finally:
        context.post_tuning()


def _winner(subject: Subject, finalists: Sequence[Proposal], trials: int) -> Outcome:
    """The quickest of the finalists, each run against ours by turns, and its results compared with ours."""
    outcome = Outcome(trials)
    for one in finalists:
        if subject.bench.agree(subject.ours, one.kernel):
            race = subject.bench.race(subject.ours, one.kernel)
            if outcome.race is None or race.ratio > outcome.race.ratio:
                outcome = Outcome(trials, one.function, race)
    return outcome
