"""Compiling the optimizer step: the learning-rate/step count is baked in, causing a recompile each step or a stale
rate.

Reported: pytorch/pytorch#133898, pytorch/pytorch#107076, Lightning-AI/lightning-thunder#1055, tenstorrent/tt-
    mlir#9327.
Right: parameters and exp_avg/exp_avg_sq/step after 4 scheduled steps equal eager.
About: optimizer state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(54)
    return nn.Linear(3, 2), (torch.randn(5, 3),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    c = wrap(m)
    opt = torch.optim.AdamW(m.parameters(), lr=0.1, weight_decay=0.01, foreach=False)
    sch = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
    for _ in range(4):
        opt.zero_grad()
        c(x).square().mean().backward()
        opt.step()
        sch.step()
    st = opt.state[m.weight]
    return {
        "w": m.weight.detach().clone(),
        "m": st["exp_avg"].clone(),
        "v": st["exp_avg_sq"].clone(),
        "step": torch.as_tensor(st["step"]).clone(),
        "lr": torch.tensor(sch.get_last_lr()[0]),
    }


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["step"].item() == 4
    assert abs(result["lr"].item() - 0.1 * 0.5**4) < 1e-9
