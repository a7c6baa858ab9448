"""After an eval() call the compiled artefact keeps frozen constants, so load_state_dict/optimizer updates are
ignored.

Reported: pytorch/pytorch#104984, pytorch/pytorch#132986.
Right: outputs after load_state_dict equal those of the new weights; .training flag follows eval()/train().
About: parameters/state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(50)
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU()), (torch.randn(4, 3),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    c = wrap(m)
    m.eval()
    with torch.no_grad():
        a = c(x)
    m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()})
    with torch.no_grad():
        b = c(x)
    want = torch.relu(x @ m[0].weight.t() + m[0].bias).detach()
    return {"a": a, "b": b, "want": want}


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert torch.allclose(result["b"], result["want"], atol=1e-6)
    assert not torch.allclose(result["a"], result["b"])
