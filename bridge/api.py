"""What a user calls: `compile`, `coverage`, `inspect` and `audit`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from bridge.errors import BadOption, NotCompilable, UnknownTarget, WrongVersion
from bridge.frontends.torch.adapters import adapter_for
from bridge.frontends.torch.capture import Capture
from bridge.frontends.torch.heap import set_aside
from bridge.frontends.torch.undefined import handles_of_others
from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Graph, Phase
from bridge.ledger import DeadEnd, Event, Ledger
from bridge.options import Dynamic, Options
from bridge.passes.decompose import decompositions
from bridge.passes.join import joined_or, unless_one
from bridge.passes.specialise import specialised
from bridge.passes.split import Split, laid_out, split_by
from bridge.runtime.audit import Audit, audit
from bridge.runtime.compiled import Compilation
from bridge.runtime.hooks import watched
from bridge.runtime.hot import with_hot_sizes
from bridge.runtime.interpreter import interpreted
from bridge.runtime.step import dry_step
from bridge.runtime.twin import CompiledFunction, State, state_of, twin_of
from bridge.runtime.unchanged import unchanged
from bridge.versions import findings

__all__ = ["TARGETS", "Audit", "audit", "compile", "coverage", "inspect"]

TARGETS = ("tvm", "triton", "inductor", "eager")
"""The targets that have a name of their own. Any other target is a TVM target: a string or a mapping."""

Make = Callable[[Graph, Compilation], CompiledGraph]


def compile(
    model_or_function: Any = None,
    target: str | Mapping[str, Any] = "tvm",
    *,
    dynamic: Dynamic = None,
    fallback: Sequence[str] | None = None,
    library: bool = True,
    partitioner: Literal["min_cut", "default"] = "min_cut",
    fuse_joint: bool = False,
    tune: float = 0,
    options: Options | Mapping[str, Any] | None = None,
) -> Any:
    """A module or a function that does what the given one does, compiled forward and backward when it is first called.

    A module comes back as a module that shares its parameters, buffers, hooks and every other attribute; a function as
    a callable. Both offer `.ledger`, `.placement` and `.explain()`. Without a first argument this is a decorator.

    dynamic: which sizes are symbols: True for all of inputs, False for none, so that each size is compiled apart; None
        for those that are marked (`torch._dynamo.mark_dynamic`) or were seen to change; "hot" as True, and sizes that
        come often get a static program beside the symbolic one.
    target: "tvm"; "triton", where Triton is asked before TVM; "inductor" and "eager" for comparison; or a TVM target
        such as {"kind": "llvm", "mcpu": "core-avx2"}. A graph whose tensors are elsewhere runs in eager, with an event.
    fallback: who takes what TVM does not, in order: if not given ["triton", "inductor", "eager"] on a GPU and ["eager"]
        on a CPU. Inductor compiles each such node by itself.
    library: ATen is called for what a vendor's library does faster, such as larger matrix products, convolutions and
        attention; False has TVM generate them as far as it can.
    partitioner: which values the forward keeps for the backward: "min_cut" computes cheap ones again, "default" keeps
        them all.
    fuse_joint: where a graph ends in one loss, compute its gradients in the forward, so that nothing is kept for them
        in between. A forward without a backward then takes as long as both; under `torch.no_grad` nothing changes.
    tune: seconds for which schedules of hot kernels are searched when a graph is built, on a CPU; 0 is no search. What
        is found is kept with the cache, and used where it was measured to be quicker than the kernel by rules. The
        first Ctrl-C ends a search and keeps what was found.
    options: further fields of `Options`, or whole `Options`, which then stand for all the other arguments.

    Raises NotCompilable for what is neither a module nor a function or has no data to run on, UnknownTarget for a
    target that nobody knows, BadOption for an option that does not exist, WrongVersion where TVM cannot run.
    """
    chosen = chosen_options(target, dynamic, fallback, library, partitioner, options, fuse_joint, tune)
    if model_or_function is None:
        return functools.partial(_compiled, options=chosen)
    return _compiled(model_or_function, chosen)


def coverage(
    model: Any,
    *args: Any,
    loss_fn: Callable[[Any], torch.Tensor] | None = None,
    dynamic: Dynamic = None,
    library: bool = True,
    **kwargs: Any,
) -> Compilation:
    """What would run in TVM, and what not: a step is captured and its nodes are placed, but nothing is compiled.

    The module or function is called once with the arguments, its ops in ATen, and so is the backward of
    loss_fn(output), or of the sum of the floating outputs, where a result requires a gradient. The model, its
    gradients, its buffers and the random number generators are afterwards as they were.

    Gives `.placement`, `.ledger`, `.graphs`, `.explain()` and `.records()` as a compiled model has them. What only
    fails when it is built cannot be known: it is counted with what TVM takes.
    """
    subject = checked(model)
    compilation = Compilation(Options(dynamic=dynamic, library=library), Ledger())
    check_target(compilation.options.target)
    read_values = compilation.options.read_values
    call = _capture(compilation, _plan_graph).compile(
        subject, compilation.options.symbolic, guard_hooks=False, read_values=read_values
    )
    with unchanged(subject, args, kwargs):
        dry_step(call, args, kwargs, loss_fn)
    return compilation


def chosen_options(
    target: str | Mapping[str, Any],
    dynamic: Dynamic,
    fallback: Sequence[str] | None,
    library: bool,
    partitioner: Literal["min_cut", "default"],
    options: Options | Mapping[str, Any] | None,
    fuse_joint: bool = False,
    tune: float = 0,
) -> Options:
    """The options that the arguments of `compile` stand for, for a target that there is."""
    if isinstance(options, Options):
        chosen = options
    else:
        order = (fallback,) if isinstance(fallback, str) else None if fallback is None else tuple(fallback)
        if not isinstance(options, Mapping | None):
            raise BadOption(f"options={options!r}: give bridge.Options, or a mapping of its fields")
        given = Options(target, dynamic, order, library, partitioner, fuse_joint, tune=tune)
        chosen = given.updated(options or {})
    check_target(chosen.target)
    return chosen


def inspect(compiled: Any) -> Compilation:
    """The compilation behind a compiled module or function, whatever attributes the user's own object has."""
    return state_of(compiled).compilation


def _compiled(subject: Any, options: Options) -> Any:
    """A compiled object for a module or a function. Pickled compiled objects name this function."""
    return compiled_in(Compilation(options, Ledger()), checked(subject))


def compiled_in(compilation: Compilation, subject: Any) -> Any:
    """A compiled object whose graphs and events go to a compilation that there is already."""
    options = compilation.options
    capture = _capture(compilation, _compile_graph)
    backend = "inductor" if options.target == "inductor" else None
    if not isinstance(subject, nn.Module):
        call = capture.compile(subject, options.symbolic, backend=backend, read_values=options.read_values)
        return CompiledFunction(State(subject, call, compilation, _compiled))

    def start() -> Callable[..., Any]:
        read_values = options.read_values
        return capture.compile(subject, options.symbolic, guard_hooks=False, backend=backend, read_values=read_values)

    return twin_of(State(subject, watched(subject, start, handles_of_others), compilation, _compiled))


def _capture(compilation: Compilation, make: Make) -> Capture:
    return Capture(
        graph_compiler(compilation, make),
        compilation.ledger,
        decompositions=decompositions(),
        split=_split(compilation),
        keep_joint=compilation.joints.append,
    )


def _split(compilation: Compilation) -> Split:
    """How joint graphs become a forward and a backward."""
    options = compilation.options
    generated = options.target != "eager"
    split = split_by(options.partitioner, generated)
    if options.fuse_joint:
        split = joined_or(split, _not_joined(compilation))
    return laid_out(split, options.library) if generated else split


def _not_joined(compilation: Compilation) -> Callable[[str], None]:
    def refused(reason: str) -> None:
        detail = f"forward and backward stay two programs: {reason}"
        compilation.ledger.record(Event(DeadEnd.COVERAGE, "fuse_joint", detail, kind="not fused", backend="tvm"))

    return refused


def graph_compiler(compilation: Compilation, make: Make | None = None) -> Callable[[Graph], CompiledGraph]:
    """Make something of each graph and keep it. What goes wrong in our compiler costs an event, not the user's run."""

    control_flow = adapter_for(torch.__version__)[0].control_flow

    @set_aside()
    def compile_graph(graph: Graph) -> CompiledGraph:
        made = compile_one(graph)
        if compilation.options.dynamic == "hot":
            return with_hot_sizes(made, lambda sizes: compile_one(specialised(graph, sizes)).run)
        return made

    def compile_one(graph: Graph) -> CompiledGraph:
        try:
            made = (make or _compile_graph)(graph, compilation)
        except control_flow:
            raise
        except BadOption as error:
            compilation.ledger.record(_elsewhere(graph, error))
            made = interpreted(graph)
        except Exception as error:
            compilation.ledger.record(_compiler_failed(graph, error))
            made = interpreted(graph)
        if compilation.options.fuse_joint and graph.phase is Phase.BACKWARD:
            made = replace(made, run=unless_one(graph.module, made.run))
        compilation.graphs.append(made)
        return made

    return compile_graph


def _compile_graph(graph: Graph, compilation: Compilation) -> CompiledGraph:
    if compilation.options.target == "eager":
        return interpreted(graph)
    from bridge.pipeline import compile_graph

    return compile_graph(graph, compilation.options, compilation.ledger)


def _plan_graph(graph: Graph, compilation: Compilation) -> CompiledGraph:
    from bridge.pipeline import plan_graph

    return plan_graph(graph, compilation.options, compilation.ledger)


def _elsewhere(graph: Graph, error: BadOption) -> Event:
    """What is known of a target only when a graph's tensors are: that it is for another device than theirs."""
    return Event(
        DeadEnd.COVERAGE,
        op="target",
        detail=str(error),
        kind="device",
        graph=graph.name,
        phase=graph.phase.value,
        backend="eager",
    )


def _compiler_failed(graph: Graph, error: Exception) -> Event:
    return Event(
        DeadEnd.MAINTENANCE,
        op="compile_graph",
        detail=f"{type(error).__name__}: {error}",
        kind="compiler failed",
        graph=graph.name,
        phase=graph.phase.value,
        backend="eager",
    )


def checked(subject: Any) -> Any:
    """What was given, or the user's own object inside it when it is compiled already."""
    if isinstance(subject, CompiledFunction) or isinstance(getattr(subject, "_bridge", None), State):
        return state_of(subject).subject
    if isinstance(subject, type):
        raise NotCompilable(f"{subject.__name__} is a class; give an instance of it, or a function")
    if not callable(subject):
        raise NotCompilable(f"{type(subject).__name__} is neither a module nor a function")
    if isinstance(subject, nn.Module):
        for name, tensor in [*subject.named_parameters(), *subject.named_buffers()]:
            if tensor.device.type == "meta":
                raise NotCompilable(f"{name!r} is on the device 'meta', which holds no data; call to_empty() first")
    return subject


def check_target(target: str | Mapping[str, Any]) -> None:
    """Raise UnknownTarget for a target that neither we nor TVM know, WrongVersion where TVM would end the process."""
    if target not in ("inductor", "eager"):
        for problem in findings():
            if problem.fatal:
                raise WrongVersion(problem.detail)
    if target in TARGETS:
        return
    known = ", ".join(repr(name) for name in TARGETS)
    if not isinstance(target, str | Mapping):
        raise UnknownTarget(f"target={target!r}: give {known}, or a TVM target as a string or a mapping")
    import tvm

    try:
        tvm.target.Target(dict(target) if isinstance(target, Mapping) else target)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1:]
        raise UnknownTarget(f"target={target!r} is none of {known}, and no TVM target: {''.join(reason)}") from error
