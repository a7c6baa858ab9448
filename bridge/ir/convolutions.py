"""What kind of convolution of images a node is, and whether its kind is one that a library on a CPU is slow at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from bridge.ir.schema import call_arguments

aten = torch.ops.aten

CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)

PLACES = 256
"""Places of all images together up to which the gradient of a depthwise weight is a kernel's."""

TAPS = 16
"""Numbers of a channel's weight from which on it is a kernel's for any number of places."""

FEW = 64
"""Places of all images together up to which the gradient of a large weight is a product with the patches it reads."""

LARGE = 1 << 14
"""Numbers of such a weight at least."""

WIDE = 14
"""Taps beside one another up to which oneDNN has code for the gradient of a weight over images by channels."""

SMALL = 1 << 19
"""Multiplications up to which a convolution with whole rows in lanes is quicker as a kernel than its call is."""

SMALL_GRADIENT = 1 << 17
"""The same of the gradient of a weight, each number of which is a sum over all places."""

LANES = 16
"""Numbers of float32 that a kernel works on at once; rows are multiples of it."""


WEIGHT_ALONE = [False, True, False]
"""How a convolution is asked for the gradient of its weight, and not of its image and bias."""


def tensors_of_convolution(node: fx.Node) -> Mapping[str, torch.Tensor]:
    """The fake "input", "weight" and "grad_output", which stands for the result of a convolution itself."""
    given = call_arguments(node)
    found = {name: given[name].meta["val"] for name in ("grad_output", "input", "weight") if name in given}
    return found if "grad_output" in found else {"grad_output": node.meta["val"], **found}


def is_of_images(node: fx.Node) -> bool:
    """Whether a node is a convolution of images in two dimensions, all sizes of which are numbers."""
    return node.target in CONVOLUTIONS and all(
        value.dim() == 4 and all(isinstance(n, int) for n in value.shape)
        for value in tensors_of_convolution(node).values()
    )


def is_product(node: fx.Node) -> bool:
    """Whether a convolution of images multiplies each place's channels with one matrix."""
    given, weight = call_arguments(node), tensors_of_convolution(node)["weight"]
    slides = given["transposed"] or any(n != 1 for n in given["stride"]) or any(n != 0 for n in given["padding"])
    return not slides and given["groups"] == 1 and tuple(weight.shape[2:]) == (1, 1)


def each(numbers: Sequence[int], dims: int) -> list[int]:
    """A stride, padding or dilation for each dimension of space, which torch also takes as one number."""
    return list(numbers) if len(numbers) == dims else list(numbers) * dims


def asks_for_weight_alone(node: fx.Node) -> bool:
    """Whether of a convolution's gradients only the weight's is wanted."""
    return list(call_arguments(node)["output_mask"]) == WEIGHT_ALONE


def replace_gradients(node: fx.Node, make: Sequence[Callable[[], fx.Node]]) -> None:
    """Give whoever picks a gradient of a convolution what is made for it: of the image, the weight or the bias."""
    made: dict[Any, fx.Node] = {}
    for pick in list(node.users):
        number: Any = pick.args[1]
        if number not in made:
            made[number] = make[number]()
        pick.replace_all_uses_with(made[number])
        pick.graph.erase_node(pick)


def is_slow_depthwise(node: fx.Node) -> bool:
    """Whether a node asks for gradients of a convolution on a CPU whose weight's gradient is better a kernel's.

    oneDNN makes that of a depthwise convolution tap by tap: of 5 times 5 taps over 28 times 28 places it takes 4 times
    as long as a kernel, of 2 times 2 places 26 times. Of 3 times 3 taps over many places it takes half as long.
    """
    weight, places = _asked_for(node)
    if weight is None or not _is_depthwise(node):
        return False
    return places <= PLACES or weight.shape[2] * weight.shape[3] >= TAPS


def is_slow_at_few_places(node: fx.Node) -> bool:
    """Whether a node asks for gradients of a convolution on a CPU of few places, but with a large weight.

    oneDNN takes 5 to 17 times as long for the weight's gradient as the product of matrices that it is: 12 ms for
    512 × 512 channels, 3 × 3 taps and 8 places, on one core. The other gradient it makes in the time of a product.
    """
    weight, places = _asked_for(node)
    if weight is None or call_arguments(node)["groups"] != 1:
        return False
    return 0 < places <= FEW and weight.numel() >= LARGE


def is_slow_by_channels(node: fx.Node) -> bool:
    """Whether a node asks for the gradient of a wide weight, which images with their channels side by side hinder.

    Of more than 14 taps in a row oneDNN makes it number by number then: of 32 × 32 taps over 32 × 32 places it takes 13
    to 40 times as long, of 17 × 17 taps, 32 × 32 channels and 28 × 28 places 57 times. How many rows does not count.
    """
    weight, _ = _asked_for(node)
    return weight is not None and not _is_depthwise(node) and weight.shape[3] > WIDE


def is_small(node: fx.Node) -> bool:
    """Whether a convolution on a CPU, as it slides from place to place without a border, is better a kernel."""
    if node.target is not aten.convolution.default or not slides_by_one(node):
        return False
    given = call_arguments(node)
    return not (given["transposed"] or any(given["padding"])) and is_quick(node, SMALL) and has_lanes(node.meta["val"])


def is_small_gradient(node: fx.Node) -> bool:
    """Whether a node is the gradient of such a convolution's weight alone, and better a kernel."""
    if node.target is not aten.convolution_backward.default or not slides_by_one(node):
        return False
    given, result = call_arguments(node), tensors_of_convolution(node)["grad_output"]
    alone = asks_for_weight_alone(node) and not given["transposed"]
    return alone and not any(given["padding"]) and is_quick(node, SMALL_GRADIENT) and has_lanes(result)


def has_lanes(image: torch.Tensor) -> bool:
    """Whether the rows of an image, whose sizes are numbers, are whole lanes."""
    return image.shape[-1] % LANES == 0


def slides_by_one(node: fx.Node) -> bool:
    """Whether a convolution stands at each place, with all channels in one group, and adds no places behind them."""
    given = call_arguments(node)
    return given["groups"] == 1 and all(n == 1 for n in given["stride"]) and not any(given["output_padding"])


def is_quick(node: fx.Node, most: int, at: str = "grad_output") -> bool:
    """Whether a convolution of float32 on a CPU, whose images lie place by place, has but few multiplications.

    most: how many, where the weight stands once at each place of the image named `at`.
    """
    values = tensors_of_convolution(node)
    if any(value.device.type != "cpu" or value.dtype != torch.float32 for value in values.values()):
        return False
    if not all(isinstance(n, int) for value in values.values() for n in value.shape):
        return False
    if not all(values[name].is_contiguous() for name in ("input", "grad_output")):
        return False
    images = values[at]
    return 0 < images.numel() // max(images.shape[1], 1) * values["weight"].numel() <= most


def _is_depthwise(node: fx.Node) -> bool:
    return call_arguments(node)["groups"] > 1 and tensors_of_convolution(node)["weight"].shape[1] == 1


def _asked_for(node: fx.Node) -> tuple[torch.Tensor | None, int]:
    """The weight whose gradient a node asks for, of real numbers on a CPU, and the places where it stands."""
    if node.target is not aten.convolution_backward.default or not is_of_images(node):
        return None, 0
    given, values = call_arguments(node), tensors_of_convolution(node)
    weight, (batch, _, height, width) = values["weight"], values["grad_output"].shape
    if weight.device.type != "cpu" or not weight.dtype.is_floating_point:
        return None, 0
    wanted = given["output_mask"][1] and not given["transposed"]
    return weight if wanted else None, batch * height * width
