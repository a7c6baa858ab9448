"""Capture a function that gives a loss as one joint graph, forward and backward, without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from bridge.frontends.torch.adapters import adapter_for
from bridge.frontends.torch.adapters.base import Frame
from bridge.frontends.torch.aliasing import Unfit, check_inputs, check_results
from bridge.frontends.torch.capture import own_frame
from bridge.frontends.torch.epilogue import effect_after_graph
from bridge.frontends.torch.masks import drop_masks
from bridge.frontends.torch.roles import FrameInput, frame_inputs, input_roles, output_roles
from bridge.frontends.torch.sized import keep_sizes
from bridge.ir.joint import JointGraph, Phase, Role, copied


class NotWhole(Exception):
    """A function is no single graph that ends in a loss. The message says why."""


class _Traced(Exception):
    """Leaves AOTAutograd once the joint graph is there."""


class _Stopped(Exception):
    """Leaves the compiled frame in place of running its graph."""


@dataclass(frozen=True)
class Whole:
    """A captured loss.

    joint: its results are the new values of what changes in place, the loss, and the gradients.
    arguments: what each input of the joint graph but for the tangent was given, tensors and sizes.
    frame: Dynamo's guards; `locals` is what they are asked about, for given arguments of the function.
    """

    joint: JointGraph
    arguments: tuple[Any, ...]
    frame: Frame
    locals: Callable[..., dict[str, Any]]
    globals: dict[str, Any]


def capture_whole(
    function: Callable[..., torch.Tensor],
    args: tuple[Any, ...],
    name: str,
    *,
    dynamic: bool | None,
    decompositions: Mapping[Any, Callable[..., Any]],
) -> Whole:
    """The joint graph of `function(*args)`, which gives a loss of one element. Raises NotWhole."""
    return _Capture(name, decompositions).run(function, args, dynamic)


class _Capture:
    def __init__(self, name: str, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        self._name = name
        self._decompositions = dict(decompositions)
        self._adapter = adapter_for(torch.__version__)[0]
        self._joint: JointGraph | None = None
        self._frame: Frame | None = None
        self._arguments: tuple[Any, ...] = ()
        self._refused = ""

    def run(self, function: Callable[..., torch.Tensor], args: tuple[Any, ...], dynamic: bool | None) -> Whole:
        own = own_frame(function)
        call = self._adapter.compile_whole(own, self._backend, dynamic, self._keep)
        try:
            call(*args)
        except _Stopped:
            pass
        except self._adapter.uncaptured as error:
            raise NotWhole(str(error).strip().split("\n")[0]) from error
        if self._refused:
            raise NotWhole(self._refused)
        if self._joint is None or self._frame is None:
            raise NotWhole("nothing in it computes a gradient, or Dynamo is switched off in this process")
        effect = effect_after_graph(self._frame.code, own.__globals__)
        if effect:
            raise NotWhole(f"it changes something else than tensors ({effect})")

        def asked(*given: Any) -> dict[str, Any]:
            return {"args": given, "kwargs": {}, "function": function}

        return Whole(self._joint, self._arguments, self._frame, asked, own.__globals__)

    def _keep(self, frame: Frame) -> None:
        self._frame = frame

    def _backend(self, module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        frame = frame_inputs(module, examples)
        aot = self._adapter.aot(
            fw_compiler=lambda graph, _: graph,
            bw_compiler=lambda graph, _: graph,
            inference_compiler=lambda graph, _: graph,
            partition_fn=self._keeper(frame),
            decompositions=self._decompositions,
        )
        try:
            check_results(module)
            drop_masks(module)
            keep_sizes(module)
            with self._adapter.rnn_tracing(module):
                aot(module, examples)
        except _Traced:
            pass
        except Unfit as reason:
            self._refused = str(reason)
        return self._stopped

    def _stopped(self, *arguments: Any) -> Any:
        self._arguments = arguments
        raise _Stopped

    def _keeper(self, frame: tuple[FrameInput, ...]) -> Callable[..., Any]:
        def keep(module: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **more: Any) -> Any:
            check_inputs(module)
            roles, names = input_roles(module, frame)
            outputs = output_roles(module)
            joint = JointGraph(
                self._name, Phase.JOINT, copied(module), roles, outputs, names, _targets(module), num_fwd_outputs
            )
            _check_loss(joint)
            self._joint = joint
            raise _Traced

        return keep


def _targets(module: fx.GraphModule) -> tuple[int | None, ...]:
    """For each result the position of the input whose new value it is."""
    placeholders = [node.meta.get("desc") for node in module.graph.nodes if node.op == "placeholder"]
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    changed = [getattr(desc, "mutated_input", None) for desc in output.meta["desc"]]
    return tuple(None if desc is None else placeholders.index(desc) for desc in changed)


def _check_loss(joint: JointGraph) -> None:
    """Raise Unfit where the graph does not end in one loss of one element."""
    results: Any = joint.nodes[-1].args[0]
    losses = [v for v, role in zip(results[: joint.forward_outputs], joint.outputs) if role is not Role.MUTATED]
    tangents = sum(role is Role.TANGENT for role in joint.inputs)
    if len(losses) > 1 and all(isinstance(loss, fx.Node) for loss in losses):
        raise Unfit("it gives or keeps other tensors beside the loss")
    if len(losses) != 1 or not isinstance(losses[0], fx.Node) or losses[0].meta["val"].numel() != 1:
        raise Unfit("what it gives is no loss of one element")
    if tangents != 1:
        raise Unfit("a gradient flows through something that it changes in place")
