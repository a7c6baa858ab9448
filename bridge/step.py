"""`compile_step`: a training step, forward, backward and the optimizer's update, as one program."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from bridge.api import checked, chosen_options, compiled_in, graph_compiler
from bridge.bound import BoundProgram, Modules, hooks_of_step
from bridge.clip import Clip
from bridge.errors import BadOption, NotCompilable
from bridge.frontends.torch.heap import set_aside
from bridge.frontends.torch.step import StepGraph, Wanted, write_step
from bridge.frontends.torch.update import NotRecorded, Path, StateMissing, bring_counts, numbers_of
from bridge.frontends.torch.whole import NotWhole, Whole, capture_whole
from bridge.given import LossFn, called, flattened, loss_of
from bridge.ir.joint import Phase
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.options import Options
from bridge.passes.decompose import decompositions
from bridge.runtime.compiled import Compilation
from bridge.runtime.step import loss_checked
from bridge.runtime.twin import State, Step

MOST_PROGRAMS = 16
"""Programs that are kept of one step; further sizes run outside of a program, with an event."""


def compile_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: LossFn | None = None,
    *,
    target: str | Mapping[str, Any] = "tvm",
    clip_norm: float | None = None,
    clip_value: float | None = None,
    keep_grads: bool = False,
    scaler: torch.amp.GradScaler | None = None,
    dynamic: bool | None = None,
    fallback: Sequence[str] | None = None,
    library: bool = True,
    partitioner: Literal["min_cut", "default"] = "min_cut",
    tune: float = 0,
    options: Options | Mapping[str, Any] | None = None,
) -> TrainingStep:
    """A callable that takes a training step: `loss = step(inputs, *targets)`.

    It computes loss_fn(model(inputs), *targets), its gradients and the optimizer's update of the parameters, as after
    `optimizer.zero_grad()`. `inputs` is a tensor, a tuple of positional or a mapping of named arguments of the model.
    Without `loss_fn` what the model gives is the loss, or has it as `.loss`. The loss is a tensor of one element, and
    comes back without a graph.

    Parameters, buffers and the optimizer's state are written where they lie, and stay the user's: `optimizer.step()`,
    `state_dict`, `load_state_dict` and schedulers of learning rates go on working beside it. `.grad` is neither read
    nor written, but with keep_grads, which leaves there the gradients that the update was made with. On a GPU a step
    count that the optimizer keeps on the CPU is moved to its parameter's GPU, and the whole step is replayed as one
    CUDA graph; options={"mode": "default"} launches its kernels one by one.

    clip_norm, clip_value: clip the gradients before the update, as `torch.nn.utils.clip_grad_norm_` and
        `clip_grad_value_` do.
    dynamic: None makes a symbol of what is marked (`torch._dynamo.mark_dynamic`), and a program for each other size.
        So it does for each value of a Python number that it is given: give one that changes as a tensor.
    scaler: scale the loss by it, and the gradients back before they are clipped. It may leave a step out, and is
        updated after each.
    The other arguments are those of `compile`.

    What is no single graph, such as a model with a graph break, with hooks on gradients, or with a tensor that shows a
    parameter's memory, is run by `compile` and the optimizer's own step, with an event; so is what a scaler is given
    for, and an optimizer that calls the loss itself.
    Raises NotCompilable for what is no module or no optimizer, and what `compile` raises; a call raises BadOption where
    what it is given for the loss has no gradient.
    """
    chosen = chosen_options(target, dynamic, fallback, library, partitioner, options, tune=tune)
    module = checked(model)
    if not isinstance(module, nn.Module):
        raise NotCompilable(f"{type(model).__name__} is no module: a step needs its parameters")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise NotCompilable(f"{type(optimizer).__name__} is no torch.optim.Optimizer")
    if clip_norm is not None and clip_value is not None:
        raise BadOption("give clip_norm or clip_value, not both")
    if scaler is not None and wants_closure(optimizer):
        raise BadOption("a scaler works with no optimizer that calls the loss itself")
    return TrainingStep(module, optimizer, loss_fn, chosen, Clip(clip_norm, clip_value), keep_grads, scaler)


class _Outside:
    """Stands among the programs for calls that no program can be made for."""

    def __init__(self, structure: Any, modules: Modules) -> None:
        self.structure, self._modules = structure, modules

    def holds(self, leaves: Sequence[torch.Tensor], structure: Any, given: Any) -> bool:
        return structure == self.structure and self._modules.same()


class TrainingStep(Step):
    """What `compile_step` gives. Call it for a step, `accumulate` for gradients alone."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: LossFn | None,
        options: Options,
        clip: Clip,
        keep_grads: bool,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._clip, self._keep = clip, keep_grads
        self._compilation = Compilation(options, Ledger())
        self._bridge = State(model, self.__call__, self._compilation, lambda *_: self)
        self._compile = graph_compiler(self._compilation)
        self._programs: dict[Any, list[BoundProgram | _Outside]] = {}
        self._numbers = itertools.count()
        self._varying: frozenset[Path] = frozenset()
        self._seen: dict[Path, float] = {}
        self._carried: frozenset[torch.Tensor] = frozenset()
        self._twin: Any = None

    def __call__(self, inputs: Any, *targets: Any) -> torch.Tensor:
        """One step. Gives the loss, as it was before the update."""
        return self._step(True, inputs, targets)

    def accumulate(self, inputs: Any, *targets: Any) -> torch.Tensor:
        """Add the gradients of a loss to those that the next call will update by. Gives the loss.

        The gradients lie in `.grad` meanwhile, and are added up as they are: divide the loss where a mean is wanted.
        """
        loss = self._step(False, inputs, targets)
        self._carried = frozenset(p for p in self._parameters() if p.grad is not None)
        return loss

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """A copy compiles anew, for copies of the model and the optimizer that belong together."""
        given = (
            self.model,
            self.optimizer,
            self.loss_fn,
            self._compilation.options,
            self._clip,
            self._keep,
            self._scaler,
        )
        return TrainingStep, given

    def __repr__(self) -> str:
        return f"<compiled step of {type(self.model).__name__} with {type(self.optimizer).__name__}>"

    # A call ----------------------------------------------------------------------------------------------------------

    def _step(self, update: bool, inputs: Any, targets: tuple[Any, ...]) -> torch.Tensor:
        leaves, structure = flattened(inputs, targets)
        if self._carried:  # but for what the user dropped meanwhile
            self._carried = frozenset(p for p in self._carried if p.grad is not None)
        kind = update, self._carried
        programs = self._programs.get(kind, ())
        for number, program in enumerate(programs):
            if program.holds(leaves, structure, lambda: (inputs, targets)):
                if number and isinstance(program, BoundProgram):
                    programs.insert(0, programs.pop(number))  # type: ignore[union-attr]
                break
        else:
            program, loss = self._made(update, leaves, structure, inputs, targets)
            if loss is not None:
                return loss
        if isinstance(program, _Outside):
            return self._outside(update, inputs, targets, compiled=True)
        loss = program.run(leaves)
        if update:
            self._finish(program.graph)
        return loss

    def _finish(self, graph: StepGraph) -> None:
        """After the program: the optimizer's own step where the program has none, and the gradients that are left."""
        if graph.update is None:
            self._own_update()
        else:
            self.optimizer._opt_called = True  # type: ignore[attr-defined]  # a scheduler asks for it
            if self._carried and not self._keep:
                self._drop_gradients()
        self._carried = frozenset()

    def _own_update(self) -> None:
        scaler = self._scaler
        if self._clip.function is not None:
            if scaler is not None:
                scaler.unscale_(self.optimizer)
            self._clip.function(self._parameters())
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()
        if not self._keep:
            self._drop_gradients()

    def _drop_gradients(self) -> None:
        for parameter in self._parameters():
            parameter.grad = None

    def _parameters(self) -> list[torch.Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]

    def _loss(self, model: Callable[..., Any], inputs: Any, targets: tuple[Any, ...]) -> torch.Tensor:
        return loss_checked(loss_of(called(model, inputs), self.loss_fn, targets), self.loss_fn)

    def _outside(self, update: bool, inputs: Any, targets: tuple[Any, ...], compiled: bool) -> torch.Tensor:
        """The step as a user writes it: the model by `compile` or as it is, torch's backward, the optimizer's step."""
        if update and wants_closure(self.optimizer):
            return self._by_closure(inputs, targets)
        if not self._carried:
            self._drop_gradients()
        loss = self._loss(self._compiled_model() if compiled else self.model, inputs, targets)
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        if update:
            self._own_update()
            self._carried = frozenset()
        return loss.detach()

    def _by_closure(self, inputs: Any, targets: tuple[Any, ...]) -> torch.Tensor:
        """The step of an optimizer that asks for the loss and its gradients as often as it likes."""
        carried = {p: p.grad for p in self._parameters() if p in self._carried and p.grad is not None}

        def closure() -> Any:
            for parameter in self._parameters():
                parameter.grad = carried[parameter].clone() if parameter in carried else None
            loss = self._loss(self._compiled_model(), inputs, targets)
            loss.backward()
            if self._clip.function is not None:
                self._clip.function(self._parameters())
            return loss

        loss: Any = self.optimizer.step(closure)
        if not self._keep:
            self._drop_gradients()
        self._carried = frozenset()
        return loss.detach()

    def _compiled_model(self) -> Any:
        if self._twin is None:
            self._twin = compiled_in(self._compilation, self.model)
        return self._twin

    # Making a program ------------------------------------------------------------------------------------------------

    @set_aside()
    def _made(
        self, update: bool, leaves: Sequence[torch.Tensor], structure: Any, inputs: Any, targets: tuple[Any, ...]
    ) -> tuple[BoundProgram | _Outside, torch.Tensor | None]:
        """A program for a call like this; and the loss, where the call had to be run to make the optimizer's state."""
        modules = Modules([m for m in (self.model, self.loss_fn) if isinstance(m, nn.Module)], self.optimizer)
        loss = None
        unfit = self._unfit(leaves, modules) or self._unfit_for_good(update)
        if unfit:
            self._tell_outside(unfit)
            return _Outside(structure, modules), None
        try:
            whole = self._captured(inputs, targets)
            try:
                graph = self._written(update, whole, leaves, modules)
            except StateMissing:
                loss = self._outside(update, inputs, targets, compiled=False)
                graph = self._written(update, whole, leaves, modules)
            given = (inputs, targets)
            compiled = self._compile(graph.graph)
            program: Any = BoundProgram(compiled, graph, whole, leaves, structure, modules, self.optimizer, given)
        except NotWhole as reason:
            self._tell(DeadEnd.COVERAGE, "step", f"the step is no single program: {reason}", "uncaptured")
            self._tell_outside(f"{reason}")
            program = _Outside(structure, modules)
        self._enter(self._programs.setdefault((update, self._carried), []), program)
        return program, loss

    @staticmethod
    def _enter(programs: list[BoundProgram | _Outside], program: BoundProgram | _Outside) -> None:
        """A program comes first; what stands for calls without one comes last, once for calls that are alike."""
        if isinstance(program, BoundProgram):
            programs.insert(0, program)
            return
        outside = [p for p in programs if isinstance(p, _Outside) and p.structure != program.structure]
        programs[:] = [p for p in programs if isinstance(p, BoundProgram)]
        programs += [*outside[1 - MOST_PROGRAMS :], program]

    def _unfit(self, leaves: Sequence[torch.Tensor], modules: Modules) -> str:
        """What it is about this very call that no program can be made for; "" for nothing."""
        memory = {t.untyped_storage().data_ptr() for t in [*modules.tensors, *self._parameters()]}
        if not torch.is_grad_enabled():
            return "gradients are switched off"
        if any(leaf.requires_grad for leaf in leaves):
            return "an input requires a gradient"
        if any(leaf.untyped_storage().data_ptr() in memory for leaf in leaves):
            return "an input shows memory of the model's"
        return ""

    def _unfit_for_good(self, update: bool) -> str:
        """What it is about the step that no program can be made for; "" for nothing."""
        if self._scaler is not None:
            return "a scaler decides after the gradients are known whether a step is taken"
        if update and wants_closure(self.optimizer):
            return "the optimizer asks for the loss as often as it likes"
        return ""

    def _captured(self, inputs: Any, targets: tuple[Any, ...]) -> Whole:
        """The loss and its gradients as one graph. Sizes are symbols if the options say so. Raises NotWhole."""
        kept = ([p for p in programs if isinstance(p, BoundProgram)] for programs in self._programs.values())
        if any(len(programs) >= MOST_PROGRAMS for programs in kept):
            raise NotWhole(f"{MOST_PROGRAMS} programs are kept already")
        if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in self.model.parameters()):  # type: ignore[attr-defined]
            raise NotWhole("a parameter has hooks on its gradient")

        model, loss_fn = self.model, self.loss_fn

        def loss(inputs: Any, targets: tuple[Any, ...]) -> torch.Tensor:
            return loss_of(called(model, inputs), loss_fn, targets)

        name, dynamic = f"step_{next(self._numbers)}", self._compilation.options.symbolic
        return capture_whole(loss, (inputs, targets), name, dynamic=dynamic or False, decompositions=decompositions())

    def _written(self, update: bool, whole: Whole, leaves: Sequence[torch.Tensor], modules: Modules) -> StepGraph:
        """The graph of the step; without the update where that cannot be recorded, which is an event."""
        bring_counts(self.optimizer)
        held = [*modules.tensors, *self._parameters()]
        wanted = Wanted(self.optimizer, self._parameters(), self._carried, self._keep, self._clip.function, self._new())
        if not update:
            return write_step(whole, leaves, held, replace(wanted, optimizer=None))
        try:
            if hooked(self.optimizer):
                raise NotRecorded("the optimizer has hooks, or a step of its own")
            return self._recorded(whole, leaves, held, wanted)
        except NotRecorded as reason:
            self._tell_outside(str(reason))
            return write_step(whole, leaves, held, replace(wanted, optimizer=None))

    def _recorded(
        self, whole: Whole, leaves: Sequence[torch.Tensor], held: Sequence[torch.Tensor], wanted: Wanted
    ) -> StepGraph:
        """The graph with the update, as Python computes it, or else as torch's optimizers do under a compiler."""
        try:
            return write_step(whole, leaves, held, wanted)
        except NotRecorded:
            if not any("capturable" in group for group in self.optimizer.param_groups):
                raise
        return write_step(whole, leaves, held, replace(wanted, on_tensors=True))

    def _new(self) -> frozenset[Path]:
        """The optimizer's numbers that are inputs: learning rates, and what has been seen to change."""
        now = numbers_of(self.optimizer)
        changed = {path for path, value in now.items() if self._seen.setdefault(path, value) != value}
        self._varying |= changed | {path for path in now if path[1] == "lr"}
        return self._varying

    def _tell_outside(self, reason: str) -> None:
        detail = f"an optimizer step that ran outside the program: {reason}"
        self._tell(DeadEnd.INPLACE_OPTIMIZER, f"{type(self.optimizer).__name__}.step", detail, "step outside")

    def _tell(self, dead_end: DeadEnd, op: str, detail: str, kind: str) -> None:
        phase = Phase.OPTIMIZER if kind == "step outside" else Phase.FORWARD
        event = Event(dead_end, op, detail, kind=kind, phase=phase.value, backend="eager")
        if event not in self._compilation.ledger.events:
            self._compilation.ledger.record(event)


def hooked(optimizer: torch.optim.Optimizer) -> bool:
    """Whether more is to happen in `optimizer.step()` than what its class says. A scheduler only counts its calls."""
    own: Any = vars(optimizer).get("step")
    replaced = own is not None and not hasattr(own, "_wrapped_by_lr_sched")
    return replaced or any(map(bool, hooks_of_step(optimizer)))


def wants_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `optimizer.step` has to be given a function that computes the loss."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty
