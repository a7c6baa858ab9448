"""What is read along one axis and written along another goes through tiles that threads share, whole and in patches."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import bridge
from tests.backends.tvm.emulated import emulated

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

TURNED: dict[str, tuple[tuple[int, ...], tuple[int, ...], Function]] = {
    "transposed": ((512, 576), (1,), lambda x, y: x.t().contiguous()),
    "over the end of both": ((500, 1004), (1,), lambda x, y: x.t().contiguous()),
    "a sum with what is not": ((512, 516), (516, 512), lambda x, y: (x.t() + y).exp()),
    "of two that are": ((512, 512), (512, 512), lambda x, y: x.t() * y.t() + y),
    "images by channels": ((3, 96, 32, 32), (96,), lambda x, y: x.permute(0, 2, 3, 1) * y),
    "heads": ((2, 4, 64, 512), (1,), lambda x, y: x.transpose(-1, -2).reshape(8, 512, 64)),
}


def turned(function: Function, x: torch.Tensor, y: torch.Tensor) -> str:
    """The kernel of the function, which gives what eager does."""
    with emulated() as programs:
        found = bridge.compile(lambda x, y: function(x, y).contiguous(), options={"cache": False})(x, y)
    torch.testing.assert_close(found, function(x, y).contiguous())
    (kernel,) = programs[0].values()
    return kernel.script()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", TURNED)
def test_tiles(name: str, dtype: torch.dtype) -> None:
    *shapes, function = TURNED[name]
    text = turned(function, *(torch.randn(shape, dtype=dtype) for shape in shapes))
    assert text.count("alloc_shared") == (2 if name == "of two that are" else 1)
    assert text.count("tvm_storage_sync") == 1
    assert re.search(r"= f0\[(T\.Ramp|.*:.* \+ 4\])", text), "read in patches"
    assert re.search(r"f\d\[.*:.* \+ 4\] = ", text), "written in patches"
    assert re.search(r" s\d+\[.* \* 65", text), "a row is one longer than a tile is wide"


def test_tiles_are_no_more_than_a_block_can_share() -> None:
    def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[0].t() + x[1].t() * x[2].t() - x[3].t() * y

    text = turned(summed, torch.randn(4, 512, 512), torch.randn(1))
    assert text.count("alloc_shared") == 2


def test_truth_values() -> None:
    assert "alloc_shared" in turned(lambda x, y: x.t() & y, torch.randn(512, 512) > 0, torch.randn(512) > 0)


def test_a_tensor_that_begins_anywhere() -> None:
    x = torch.randn(512 * 512 + 1)[1:].view(512, 512)
    assert "alloc_shared" in turned(lambda x, y: x.t() * y, x, torch.randn(513)[1:])


STRAIGHT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "too little": lambda x: x[:64, :64].t().contiguous(),
    "along the same axis": lambda x: x.view(8, 64, 512).transpose(0, 1).contiguous(),
    "few numbers": lambda x: x * x[:, 0],
    "an axis of three": lambda x: x[:, :3].t().contiguous(),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_what_is_not_turned(name: str) -> None:
    x = torch.randn(512, 512)
    with emulated() as programs:
        found = bridge.compile(STRAIGHT[name], options={"cache": False})(x)
    torch.testing.assert_close(found, STRAIGHT[name](x))
    assert not any("alloc_shared" in kernel.script() for kernel in programs[0].values())
