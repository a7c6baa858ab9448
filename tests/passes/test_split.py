"""The split of a joint graph, and what a checkpoint may not draw twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import bridge
from bridge.ir.nodes import is_random
from bridge.passes.split import SPLITS


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.dropout((x @ weight).sin(), 0.5).cos() * torch.rand_like(x)


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    result: Any = checkpoint(block, x, weight, use_reentrant=False)
    return result.sum()


@pytest.mark.parametrize("split", SPLITS)
def test_a_checkpoint_draws_once_and_recomputes_the_rest(split: Any) -> None:
    given = [torch.randn(6, 6, requires_grad=True) for _ in range(2)]
    reference = copy.deepcopy(given)
    compiled = bridge.compile(program, "eager", partitioner=split)
    for function, inputs in ((compiled, given), (program, reference)):
        torch.manual_seed(1)
        function(*inputs).backward()
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(given, reference))  # type: ignore[arg-type]
    forward, backward = (graph.graph for graph in bridge.inspect(compiled).graphs)
    assert sum(is_random(node) for node in forward.nodes) == 2
    assert not any(is_random(node) for node in backward.nodes)
    assert torch.ops.aten.sin.default in {node.target for node in backward.nodes}
