"""What each input and each result of a captured graph is, read from AOTAutograd's descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from bridge.ir.joint import Role
from bridge.ir.provenance import dotted_name

_OF_INPUT = {"TangentAOTInput": Role.TANGENT, "ParamAOTInput": Role.PARAMETER, "BufferAOTInput": Role.BUFFER}
"""Roles that the class of an input's descriptor tells. Named by class: torch adds classes, and renamed none so far."""

_OF_OUTPUT = {
    "InputMutationAOTOutput": Role.MUTATED,
    "GradAOTOutput": Role.GRADIENT,
    "SavedForBackwardsAOTOutput": Role.SAVED,
    "SavedForBackwardsNoVcCheckAOTOutput": Role.SAVED,
}


@dataclass(frozen=True)
class FrameInput:
    """One input of a frame that Dynamo captured: what it is, and the user's name for it, "" where it has none."""

    role: Role
    name: str


def frame_inputs(module: fx.GraphModule, examples: Sequence[Any]) -> tuple[FrameInput, ...]:
    """The inputs of Dynamo's graph in order; AOTAutograd's descriptors count through them."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(_frame_input(node, example) for node, example in zip(placeholders, examples, strict=True))


def _frame_input(node: fx.Node, example: Any) -> FrameInput:
    source = str(getattr(getattr(node, "_dynamo_source", None), "name", ""))
    if not isinstance(example, torch.Tensor):
        return FrameInput(Role.SIZE, dotted_name(source))
    if isinstance(example, torch.nn.Parameter):
        return FrameInput(Role.PARAMETER, dotted_name(source))
    return FrameInput(Role.BUFFER if "_buffers[" in source else Role.INPUT, dotted_name(source))


def input_roles(module: fx.GraphModule, frame: Sequence[FrameInput]) -> tuple[tuple[Role, ...], tuple[str, ...]]:
    """A role and a name for each placeholder. What a backward gets from its forward alone is SAVED."""
    described = [_described(node, frame) for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(item.role for item in described), tuple(item.name for item in described)


def _described(node: fx.Node, frame: Sequence[FrameInput]) -> FrameInput:
    descriptor = node.meta.get("desc")
    of_frame = origin(descriptor, frame)
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return FrameInput(Role.SIZE, of_frame.name if of_frame else "")
    if of_frame is not None:
        return of_frame
    if descriptor is None:
        return FrameInput(Role.SAVED, "")
    return FrameInput(_OF_INPUT.get(type(descriptor).__name__, Role.INPUT), getattr(descriptor, "target", ""))


def origin(descriptor: Any, frame: Sequence[FrameInput]) -> FrameInput | None:
    """The frame's input that a descriptor points at, through views and the parts of tensor subclasses."""
    while descriptor is not None and type(descriptor).__name__ != "PlainAOTInput":
        descriptor = getattr(descriptor, "base_of", None) or getattr(descriptor, "base", None)
    index = getattr(descriptor, "idx", None)
    return frame[index] if index is not None and index < len(frame) else None


def output_roles(module: fx.GraphModule) -> tuple[Role, ...]:
    """A role for each result. A gradient that does not exist is a GRADIENT too; its value is None."""
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    results = output.args[0]
    assert isinstance(results, (tuple, list)), "AOTAutograd's graphs return a flat tuple"
    descriptors = output.meta.get("desc") or [None] * len(results)
    return tuple(_output_role(value, descriptor) for value, descriptor in zip(results, descriptors, strict=True))


def _output_role(value: Any, descriptor: Any) -> Role:
    """By torch's descriptor, or the role itself where a pass of ours put one in its place."""
    if value is None and descriptor is None:
        return Role.GRADIENT
    own = descriptor if isinstance(descriptor, Role) else Role.OUTPUT
    role = _OF_OUTPUT.get(type(descriptor).__name__, own)
    fake = value.meta.get("val") if isinstance(value, fx.Node) else value
    return Role.SIZE if role is Role.SAVED and not isinstance(fake, torch.Tensor) else role


@dataclass(frozen=True)
class Mutation:
    """A tensor of the user's that the graph changes: its new value is a result, which AOTAutograd copies back.

    bytes: that are copied at each run; 0 where the size is a symbol.
    """

    name: str
    role: Role
    node: fx.Node
    bytes: int


def mutations(module: fx.GraphModule, frame: Sequence[FrameInput]) -> list[Mutation]:
    """What AOTAutograd copies back after the graph ran."""
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    found = []
    for result, descriptor in zip(output.args[0], output.meta.get("desc") or (), strict=False):  # type: ignore[arg-type]
        if _OF_OUTPUT.get(type(descriptor).__name__) is not Role.MUTATED or not isinstance(result, fx.Node):
            continue
        target = origin(descriptor.mutated_input, frame) or FrameInput(Role.INPUT, "")
        value = result.meta["val"]
        known = all(isinstance(size, int) for size in value.shape)
        found.append(Mutation(target.name, target.role, result, value.nbytes if known else 0))
    return found
