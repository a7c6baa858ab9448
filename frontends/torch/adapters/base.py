"""The private names of torch that capture stands on, behind functions of our own. One object for each torch series."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import CodeType
from typing import Any, Protocol

import torch
import torch._dynamo
import torch._dynamo.config
import torch._functorch.config
import torch.compiler.config
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import InternalTorchDynamoError, TorchDynamoException
from torch._dynamo.types import ConvertFrameReturn
from torch._dynamo.utils import counters
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound

from bridge.frontends.torch.adapters.dropout import leave_out_inactive
from bridge.frontends.torch.adapters.random import take_symbols
from bridge.frontends.torch.adapters.rnn import dropout_between_layers
from bridge.frontends.torch.heap import set_aside
from bridge.frontends.torch.values import Misjudged
from bridge.ir.shapes import new_symbols_of
from bridge.touched import TORCH

PRIVATE_NAMES: tuple[str, ...] = tuple(touched.name for touched in TORCH)
"""Everything private that is imported, called or set, for a probe to look for: listed in `bridge/touched.py`."""

MODULES_OF_TORCH = os.path.dirname(torch.nn.modules.__file__)
"""The folder of `torch.nn`'s own modules."""


config_of_compiler: Any = torch.compiler.config
"""Its names are public; how they are set is not in its types."""

MARKS = r"_dynamo_(weak_|unbacked_|strict_unbacked_)?(dynamic_)?indices"
"""How the attributes are called in which torch keeps of a tensor which of its dimensions are dynamic."""

READS_VALUES = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")
"""Dynamo's options for `item` and the like, and for results whose size depends on values."""

ABOUT_VALUES = (GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound, TorchDynamoException, Misjudged)
"""What is raised where something must be known of a number that is read out of a tensor, and for other reasons too."""

IN_A_LOOP = "graph break in loop"
"""How Dynamo calls it where it gives a frame up because it would have to end a graph in a loop."""

FAULTS = (InternalTorchDynamoError, IndexError, AssertionError)
"""What Dynamo raises where it fails itself. If it was the user's own mistake, plain Python will say so."""


@dataclass(frozen=True)
class GraphBreak:
    """Why Dynamo ended a graph before the end of the function, and the user's frames there."""

    reason: str
    frames: tuple[Any, ...]


@dataclass(frozen=True)
class Frame:
    """What Dynamo made of a frame.

    code: what runs in its place. check: whether it may, for given locals. guards: what is checked, as text.
    """

    code: CodeType
    check: Callable[[dict[str, Any]], bool]
    guards: tuple[str, ...]


class Listener(Protocol):
    """What is told while Dynamo compiles frames."""

    def frame_begun(self, breaks: Counter[str]) -> None:
        """A frame is about to be compiled. breaks: how often each reason has ended a graph in this process so far."""

    def guard_failed(self, reason: str) -> None:
        """A frame that was compiled before has to be compiled again."""

    def frame_skipped(self, frame: Any, reason: str) -> None:
        """A frame runs as plain Python, now and on every later call."""

    def frame_broken(self, frame: Any, reason: str) -> None:
        """A frame broke. If no graph was made of it before it did, nobody else tells."""

    def frame_failed(self, frame: Any, error: Exception) -> None:
        """Dynamo failed by a fault of its own, and the frame runs as plain Python."""

    def switched_off(self) -> None:
        """Dynamo is switched off in this process (TORCHDYNAMO_DISABLE=1), so nothing is captured."""

    def limit_reached(self, frame: Any) -> None:
        """A frame had to be compiled again and was not, since that happened too often."""


@dataclass(frozen=True)
class Adapter:
    """What differs between torch series.

    series: the series that were run or read with this adapter, "2.14".
    isolates: the compilations of one `torch.compile` are kept and counted apart from those of another on the same
        code; without it, many compiled instances of one class share one recompile limit after a graph break.
    """

    series: tuple[str, ...]
    isolates: bool

    def compile(
        self,
        function: Callable[..., Any],
        backend: Callable[..., Any] | str,
        dynamic: bool | None,
        listener: Listener,
        guard_hooks: bool,
        read_values: bool = False,
        begins: Callable[[Any], None] = lambda frame: None,
        follows: Callable[[Any], AbstractContextManager[Sequence[str]]] = lambda frame: nullcontext(()),
    ) -> Callable[..., Any]:
        """`torch.compile` that captures recurrent modules too, and tells what Dynamo otherwise keeps to its logs.

        guard_hooks: compile again when hooks of modules change, which costs time at every call.
        read_values: keep in the graph what reads numbers or sizes out of tensors, where nothing branches on them.
        begins: is given the function's own frame before it is compiled.
        follows: is given each frame within the function, is entered while that is compiled, and says where it finds
            integers that are symbols, as regular expressions for torch's names of sources.
        """
        take_symbols()
        isolation = {"isolate_recompiles": True} if self.isolates else {}
        context: Any = torch._dynamo.optimize(
            backend, dynamic=dynamic, guard_fail_fn=lambda failure: listener.guard_failed(failure.reason), **isolation
        )
        if not hasattr(context, "callback"):
            listener.switched_off()
            return function
        config = {"allow_rnn": True, "skip_nnmodule_hook_guards": not guard_hooks}
        around = _without_onednn if dynamic else nullcontext
        first, callback = getattr(function, "__code__", None), context.callback

        def told(frame: Any, *more: Any, **named: Any) -> Any:
            if frame.f_code is first:
                begins(frame)
                with around():
                    return callback(frame, *more, **named)
            with follows(frame) as integers, around():
                symbols = ",".join(integers)
                with config_of_compiler.patch(dynamic_sources=symbols) if symbols else nullcontext():
                    return callback(frame, *more, **named)

        told._torchdynamo_orig_backend = callback  # type: ignore[attr-defined]
        context.callback = _listened(told, listener, config, read_values)
        return context(function)

    def compile_whole(
        self,
        function: Callable[..., Any],
        backend: Callable[..., Any],
        dynamic: bool | None,
        keep: Callable[[Frame], None],
    ) -> Callable[..., Any]:
        """`torch.compile(fullgraph=True)` that hands over what Dynamo made of the frame.

        Called, it raises one of `uncaptured` where the function is no single graph; where Dynamo is switched off it is
        the function itself.
        """
        take_symbols()
        context: Any = torch._dynamo.optimize(backend, nopython=True, dynamic=dynamic)
        if not hasattr(context, "callback"):
            return function
        callback = context.callback

        def compile_frame(frame: Any, *more: Any, **named: Any) -> Any:
            with torch._dynamo.config.patch(allow_rnn=True), _without_onednn() if dynamic else nullcontext():
                answer = callback(frame, *more, **named)
            if answer.guarded_code is not None:
                code = answer.guarded_code
                keep(Frame(code.code, code.guard_manager.check, tuple(code.guard_manager.code_parts)))
            return answer

        compile_frame._torchdynamo_orig_backend = callback  # type: ignore[attr-defined]
        context.callback = compile_frame
        return context(function)

    def aot(self, **arguments: Any) -> Callable[[fx.GraphModule, Any], Callable[..., Any]]:
        """A backend of AOTAutograd's."""
        return aot_autograd(**arguments)

    @contextmanager
    def rnn_tracing(self, module: fx.GraphModule) -> Iterator[None]:
        """While a graph is traced: recurrent modules keep their dropout, and LSTMs are written out.

        oneDNN's op for a whole layer of an LSTM cannot be split by AOTAutograd, so it is kept out. And dropout that
        drops nothing copies nothing.
        """
        leave_out_inactive(module)
        has_lstm = any(node.target is torch.lstm for node in module.graph.nodes)
        with dropout_between_layers(), _without_onednn() if has_lstm else nullcontext():
            yield

    @contextmanager
    def splitting(self, module: fx.GraphModule) -> Iterator[None]:
        """While a joint graph is split: equal nodes stay apart where sizes depend on values.

        Torch makes one of two equal ones, and leaves the names of the other's sizes in the graph.
        """
        apart = any(new_symbols_of(node) for node in module.graph.nodes if node.op == "call_function")
        with torch._functorch.config.patch(cse=False) if apart else nullcontext():
            yield

    def mark_dynamic(self, tensor: torch.Tensor, dim: int) -> None:
        """Say that a size of a tensor is a symbol to what is compiled for it, unless it turns out to be fixed."""
        torch._dynamo.maybe_mark_dynamic(tensor, dim)

    def dynamic_dims(self, tensor: torch.Tensor) -> set[int]:
        """The dimensions of a tensor that somebody has said to be symbols, by whichever of torch's functions."""
        marks = [dims for name, dims in vars(tensor).items() if re.fullmatch(MARKS, name)]
        return set().union(*marks)

    def graph_break(self, module: fx.GraphModule, breaks: Counter[str]) -> GraphBreak | None:
        """Why the graph ends where it ends; None where the function returned.

        breaks: what `Listener.frame_begun` was given for the frame. Dynamo tells the full reason only as a count.
        """
        reason = getattr(module, "compile_subgraph_reason", None)
        if reason is None or not reason.graph_break:
            return None
        new = _new_breaks(breaks)
        return GraphBreak(new[-1] if new else reason.reason, tuple(reason.user_stack))

    @property
    def uncaptured(self) -> tuple[type[BaseException], ...]:
        """What is raised where a function cannot be captured as one graph."""
        return (TorchDynamoException, *FAULTS)

    @property
    def control_flow(self) -> type[BaseException]:
        """The exceptions by which Dynamo steers itself. They pass through whatever we do."""
        return TorchDynamoException


def _listened(callback: Any, listener: Listener, config: dict[str, Any], read_values: bool) -> Any:
    """Dynamo's callback for a new frame, with options set while it works and its silent answers told.

    Set here, options hold for the compilation of our frames alone, and cost nothing when a compiled frame is called.
    """

    @set_aside()
    def compile_frame(frame: Any, *more: Any, **named: Any) -> Any:
        hits = _recompile_limit_hits()
        options = {**config, "dont_skip_tracing": _is_of_torchs_module(frame)}
        try:
            answer, broken = _answer(lambda: callback(frame, *more, **named), options, read_values, listener)
        except FAULTS as error:
            listener.frame_failed(frame, error)
            return ConvertFrameReturn()
        if _recompile_limit_hits() > hits:
            listener.limit_reached(frame)
        elif broken:
            listener.frame_broken(frame, broken[-1])
        elif answer.guarded_code is None:
            listener.frame_skipped(frame, getattr(answer, "skip_reason", None) or "Dynamo does not say why")
        return answer

    compile_frame._torchdynamo_orig_backend = callback  # type: ignore[attr-defined]
    return compile_frame


def _answer(
    compile: Callable[[], Any], options: dict[str, Any], read_values: bool, listener: Listener
) -> tuple[Any, list[str]]:
    """What Dynamo makes of a frame, and why graphs of it ended before the function returned.

    Where it fails on what is read out of tensors, the graph breaks there instead, and why it failed is not told. It
    also fails where such a number decides how many dimensions a result has, and then says what it says of a wrong
    program. And it gives the whole frame up where a loop branches on a number that was read before the loop.
    """
    if read_values:
        listener.frame_begun(breaks := _breaks())
        try:
            with torch._dynamo.config.patch({**options, **dict.fromkeys(READS_VALUES, True)}):
                answer = compile()
            broken = _new_breaks(breaks)
            if answer.guarded_code is not None or not any(IN_A_LOOP in text for text in broken):
                return answer, broken
        except Exception as error:
            if not _reads_values(error):
                raise
    listener.frame_begun(breaks := _breaks())
    with torch._dynamo.config.patch(options):
        return compile(), _new_breaks(breaks)


def _reads_values(error: BaseException | None) -> bool:
    """Whether an error may be due to a number that is known only when the program runs."""
    while error is not None and not isinstance(error, ABOUT_VALUES):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_of_torchs_module(frame: Any) -> bool:
    """Whether this is the forward of a module of `torch.nn`, called from where Dynamo gave up.

    Dynamo leaves such a frame to eager; nothing hinders it from being a graph.
    """
    return frame.f_code.co_name == "forward" and frame.f_code.co_filename.startswith(MODULES_OF_TORCH)


def _breaks() -> Counter[str]:
    """How often each reason has ended a graph in this process."""
    return Counter(counters["unimplemented"]) + Counter(counters["graph_break"])


def _new_breaks(before: Counter[str]) -> list[str]:
    """The reasons that have ended a graph since."""
    return [text for text, n in _breaks().items() if n > before[text]]


@contextmanager
def _without_onednn() -> Iterator[None]:
    """By the function and not by the flag, which `torch.backends.disable_global_flags` forbids to set.

    An LSTM is then written out. And the batch of a convolution stays a symbol: oneDNN and NNPACK are asked whether they
    want to be called, and want 16 images, so that a graph would hold for fewer or for more.
    """
    onednn, *_ = torch.backends.mkldnn.set_flags(False)
    nnpack, *_ = torch.backends.nnpack.set_flags(False)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(onednn)
        torch.backends.nnpack.set_flags(nnpack)


def _recompile_limit_hits() -> int:
    """How often Dynamo has given a frame up in this process because it was compiled too often."""
    return sum(n for category in counters.values() for text, n in category.items() if "recompile limit" in str(text))
