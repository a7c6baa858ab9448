"""Recomputation under checkpointing/min-cut draws a fresh dropout mask in backward, so gradients belong to another
mask.

Reported: pytorch/pytorch#190758, pytorch/pytorch#198333, Lightning-AI/lightning-thunder#114.
Right: stream independent: x.grad is non-zero exactly where the output is non-zero, with value 1/(1-p).
About: AOTAutograd semantics (RNG).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.cases.harness import Record


def block(x):
    return F.dropout(x, p=0.5, training=True)


def f(x):
    return checkpoint(block, x, use_reentrant=False)


def loss(out: Any) -> torch.Tensor:
    return out.sum()


def make() -> tuple[Any, tuple[Any, ...]]:
    return f, (torch.ones(64, 32, requires_grad=True),)


def check(record: Record) -> None:
    o, g = record.outputs[0], record.gradients[0]
    assert torch.equal(o, g), "mask used in backward differs from forward"
    assert 0.35 < (o != 0).float().mean().item() < 0.65
