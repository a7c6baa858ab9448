"""Two inputs share storage with an offset; base is mutated and a view of the second input is returned - the view
comes back from the wrong rows.

Reported: pytorch/pytorch#198095.
Right: result equals row 2 of the mutated buffer (tail[0] with tail = buf[2:]).
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.cases.harness import Wrap

BACKWARD = False


def bump_then_peek(buf, tail):
    buf.sub_(7.0)
    return tail[0]


def make() -> tuple[Any, tuple[Any, ...]]:
    buf = torch.arange(30, dtype=torch.float32).reshape(6, 5)
    return bump_then_peek, (buf, buf[2:])


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    f, (b, t) = make()
    o = wrap(f)(b, t)
    return {"row": o.clone(), "buf": b.clone()}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert torch.equal(result["row"], torch.arange(10.0, 15.0) - 7.0)
