"""The search for one kernel: MetaSchedule proposes orders of its loops, each is built and timed here.

TVM's own builder and runner start pools of processes with time limits of their own, and time kernels on TVM's threads.
This process is one that may die, and kernels run on the threads that they will run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from bridge.backends.tvm.codegen import compiled
from bridge.backends.tvm.compat import meta_schedule
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.schedule import cpu
from bridge.backends.tvm.schedule.axes import laid_out
from bridge.backends.tvm.schedule.emit import Code
from bridge.backends.tvm.schedule.nest import nest_of
from bridge.backends.tvm.schedule.parameters import Parameters, Scheduled
from bridge.backends.tvm.schedule.vector import width
from bridge.backends.tvm.tune.blocks import NotTunable, blocks_of, check_runs_alone
from bridge.backends.tvm.tune.finish import finished
from bridge.backends.tvm.tune.measure import Bench, Race

BATCH = 8
"""Proposals of one round, after which MetaSchedule is told how they did."""

FINALISTS = 3
"""Proposals that are compared with ours by turns."""

HOPELESS = 8
"""How many times as slow as ours a proposal is not compared with it."""

SEARCHED, RULES = "MetaSchedule", "rules, wider lanes"
"""Who proposes kernels."""

STEPS = (128, 256)
"""Bytes that our rules may let one step in lanes cover, beside those that they choose."""

NAME = "kernel"


class Subject:
    """A kernel that is searched for: ours, and its blocks. Raises NotTunable, if not even ours can be run by itself.

    Memory to run it on and machine code are made when they are first asked for, since a program has many kernels.
    """

    def __init__(self, kernel: Kernel, made: Scheduled, target: Any, threads: int) -> None:
        check_runs_alone(kernel)
        self.why = ""
        try:
            self.blocks = blocks_of(kernel)
        except NotTunable as reason:
            self.blocks, self.why = None, str(reason)
        self.kernel, self.made, self._target = kernel, made, target
        # as MetaSchedule wants to be told of the hardware: with the number of threads
        self.target: Any = tvm.target.Target({**dict(target.export()), "num-cores": max(threads, 1)})
        self._variables = Parameters(laid_out(nest_of(kernel)), kernel.stored, Code(), {}, {}).variables
        self.module = tvm.IRModule({"main": self.blocks.function if self.blocks else made.function})

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
        assert self.blocks is not None
        return finished(schedule.mod["main"], self._variables, NAME, self.blocks.stores)


@dataclass(frozen=True)
class Proposal:
    """A kernel that was proposed, in machine code too, and what it took. by: who proposed it."""

    by: str
    seconds: float
    function: Any
    kernel: Any


@dataclass(frozen=True)
class Outcome:
    """trials: what MetaSchedule proposed. races: against ours, by who proposed; the functions likewise.

    ended: there is nothing left to propose.
    """

    trials: int
    races: Mapping[str, Race]
    functions: Mapping[str, Any]
    ended: bool

    @property
    def best(self) -> str | None:
        """Whose kernel is the quickest, None where there is none."""
        return max(self.races, key=lambda by: self.races[by].ratio, default=None)


def subject_of(kernel: Kernel, target: Any, threads: int) -> Subject:
    """Ours and the blocks of one kernel. Raises NotTunable."""
    return Subject(kernel, cpu.scheduled(kernel, NAME), target, threads)


def search(subject: Subject, folder: Path, known: Any | None, seed: int, goes_on: Callable[[int], bool]) -> Outcome:
    """Search until `goes_on`, asked with the number of trials before each of them, says no.

    folder: where the records lie. known: the best kernel so far, if there was a search before.
    """
    bound = HOPELESS * subject.bench.seconds(subject.ours)  # which warms up the memory that all run on
    ours = wider(subject)
    if subject.blocks is None:
        return _winners(subject, ours, 0, True)
    database = opened(folder)
    workload = database.commit_workload(subject.module)
    best = [] if known is None else [_proposal(subject, SEARCHED, known, float("inf"))]
    trials, ended = 0, True
    for candidate, tell in _proposals(subject, database, seed):
        if not goes_on(trials):
            ended = False
            break
        trials += 1
        try:
            limit = 3 * best[0].seconds if best else float("inf")
            made = _proposal(subject, SEARCHED, subject.function(candidate.sch), limit)
        except Exception:  # whatever TVM says against a schedule
            tell(None)
            continue
        best = sorted([*best, made], key=lambda proposal: proposal.seconds)[:FINALISTS]
        record = (candidate.sch.trace, workload, [made.seconds], subject.target, candidate.args_info)
        database.commit_tuning_record(meta_schedule().database.TuningRecord(*record))
        tell(made.seconds)
    return _winners(subject, [*ours, *(one for one in best if one.seconds <= bound)], trials, ended)


def wider(subject: Subject) -> list[Proposal]:
    """Ours, with more memory covered by one step in lanes: what is computed from it then overlaps."""
    found: list[Proposal] = []
    seen = [subject.made.function]
    for step in STEPS:
        function = cpu.scheduled(subject.kernel, NAME, step).function
        if not any(tvm_ffi.structural_equal(function, other, map_free_vars=True) for other in seen):
            seen.append(function)
            found.append(_proposal(subject, RULES, function, float("inf")))
    return found


def _proposal(subject: Subject, by: str, function: Any, bound: float) -> Proposal:
    """A kernel, built and timed; once only, where it takes longer than the bound."""
    kernel = subject.built(function)
    return Proposal(by, subject.bench.seconds(kernel, bound), function, kernel)


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


def _winners(subject: Subject, finalists: Sequence[Proposal], trials: int, ended: bool) -> Outcome:
    """The best of each who proposed: run against ours by turns, where its results agree with those of ours."""
    races: dict[str, Race] = {}
    functions: dict[str, Any] = {}
    for one in finalists:
        if subject.bench.agree(subject.ours, one.kernel):
            race = subject.bench.race(subject.ours, one.kernel)
            if one.by not in races or race.ratio > races[one.by].ratio:
                races[one.by], functions[one.by] = race, one.function
    return Outcome(trials, races, functions, ended)
