"""With training=False dropout hands back the very same tensor, so later in-place math must reach the caller; the
compiled version forgets the write.

Reported: pytorch/pytorch#195422.
Right: caller's tensor is squared in place.
About: in-place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from tests.cases.harness import Wrap

BACKWARD = False


def f(t):
    u = F.dropout(t, p=0.3, training=False)
    u.mul_(u)
    return u + 1


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(9)
    return f, (torch.randn(2, 5),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    g, (t,) = make()
    was = t.clone()
    o = wrap(g)(t)
    return {"was": was, "now": t.clone(), "o": o}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert torch.allclose(result["now"], result["was"] ** 2)
