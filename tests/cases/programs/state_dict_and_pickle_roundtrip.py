"""Wrapping renames checkpoint keys and the wrapped object cannot be pickled or deep-copied.

Reported: pytorch/pytorch#101107, pytorch/pytorch#149894, Lightning-AI/pytorch-lightning#20233, eole-nlp/eole#179.
Right: state_dict keys are those of the plain module; deepcopy and pickle give a working module with equal outputs.
About: integration.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import nn

from tests.cases.harness import Wrap


def make() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(49)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), (torch.randn(6, 3),)


def scenario(wrap: Wrap) -> dict[str, torch.Tensor]:
    m, (x,) = make()
    plain = set(m.state_dict())
    c = wrap(m)
    c(x).detach()
    same = set(c.state_dict()) == plain
    m.eval()
    ref = c(x).detach()
    d = copy.deepcopy(c)
    p = pickle.loads(pickle.dumps(c))
    buf = io.BytesIO()
    torch.save(c.state_dict(), buf)
    buf.seek(0)
    fresh, _ = make()
    fresh.eval()
    fresh.load_state_dict(torch.load(buf))
    return {
        "keys": torch.tensor(same),
        "ref": ref,
        "deep": d(x).detach(),
        "pick": p(x).detach(),
        "ckpt": fresh(x).detach(),
    }


def check_scenario(result: dict[str, torch.Tensor]) -> None:
    assert result["keys"].item()
    for k in ("deep", "pick", "ckpt"):
        assert torch.allclose(result[k], result["ref"], atol=1e-6), k
