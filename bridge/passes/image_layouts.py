"""How a convolution wants its images to lie: channels side by side, or one after the other.

A graph decides as a whole, for most of its work. On a GPU, cuDNN's convolutions of 16-bit numbers, and of float32 in
TF32, read and write channels side by side, and turn around what lies otherwise.

On a CPU it is convolutions of 1 × 1 and in groups that gain: oneDNN takes images with their channels side by side as
they are, and copies others into blocks of channels and back. Of 341 sizes of 1 × 1 and 114 in groups in corpus models,
by channels takes 0.80 and 0.69 of the time in the geometric mean, on two cores. Dense ones with several taps gain
little, and round a little worse so: they go along where most of the others are. It is the other way round where a
weight is larger than the images, which is then read along its rows, and whose gradient comes out in an order that
nobody asked for.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from bridge.ir.convolutions import is_of_images, is_product, is_slow_by_channels, tensors_of_convolution
from bridge.ir.schema import call_arguments

aten = torch.ops.aten

CHANNELS = 16
"""Channels that a convolution has on both sides at least, for its work on a GPU to count for the layout."""


def gains(module: fx.GraphModule) -> bool:
    """Whether to lay out a module's images: where most of what its convolutions do gains."""
    nodes = [node for node in module.graph.nodes if node.target is aten.convolution.default]
    work = {node: _work(node) if _on_a_gpu(node) else _moved(node) for node in nodes}
    wanted = sum(count for node, count in work.items() if (_is_wide if _on_a_gpu(node) else _is_quicker)(node))
    return 2 * wanted > sum(work.values()) > 0


def images_of(node: fx.Node) -> tuple[str, ...]:
    """The arguments of a convolution that its layout is about. On a CPU weights are laid out anew in any case."""
    names = ("grad_output", "input", "weight") if _on_a_gpu(node) else ("grad_output", "input")
    given = call_arguments(node)
    return tuple(name for name in names if name in given)


def wants_channels_last(node: fx.Node) -> bool:
    """Whether a convolution of images in a module that gains wants their channels side by side."""
    return is_of_images(node) and (_on_a_gpu(node) or _is_light(node))


def _on_a_gpu(node: fx.Node) -> bool:
    return tensors_of_convolution(node)["weight"].device.type == "cuda"


def _is_light(node: fx.Node) -> bool:
    """Whether oneDNN runs a convolution on the CPU, of more numbers in images than in its weight, which is not wide."""
    values = tensors_of_convolution(node)
    weight, images = values["weight"], (values["input"], values["grad_output"])
    if not torch.backends.mkldnn.enabled or weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    if any(math.prod(value.shape) == 0 for value in values.values()):
        return False
    if is_slow_by_channels(node):
        return False
    return is_product(node) or sum(value.numel() for value in images) >= weight.numel()


def _is_quicker(node: fx.Node) -> bool:
    """Whether a convolution on a CPU is of a kind that oneDNN is much quicker with by channels."""
    return wants_channels_last(node) and (is_product(node) or call_arguments(node)["groups"] > 1)


def _moved(node: fx.Node) -> int:
    """Numbers that a convolution on a CPU reads and writes, if all sizes are numbers: it takes about as long."""
    values = tensors_of_convolution(node)
    sizes = [math.prod(values[name].shape) for name in ("input", "grad_output")]
    return sum(sizes) if all(isinstance(n, int) for n in sizes) else 1 << 62


def _work(node: fx.Node) -> int:
    """Multiplications of a convolution whose sizes are numbers; others are not laid out anew."""
    weight, result = call_arguments(node)["weight"].meta["val"], node.meta["val"]
    sizes = [*result.shape, *weight.shape[1:]]
    return torch.Size(sizes).numel() if all(isinstance(n, int) for n in sizes) else 1 << 62


def _is_wide(node: fx.Node) -> bool:
    given, result = call_arguments(node), node.meta["val"]
    weight = given["weight"].meta["val"]
    if result.dim() != 4 or given["groups"] != 1 or given["transposed"]:
        return False
    if result.dtype not in (torch.bfloat16, torch.float16) and not _is_tf32(result.dtype):
        return False
    return all(isinstance(n, int) for n in result.shape) and min(weight.shape[:2]) >= CHANNELS


def _is_tf32(dtype: torch.dtype) -> bool:
    return dtype == torch.float32 and torch.backends.cudnn.allow_tf32
