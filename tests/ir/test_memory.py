"""Tensors that lie in the same memory."""

from __future__ import annotations

import pytest
import torch

from bridge.ir.memory import overlapping

WHOLE = torch.zeros(4, 6)
CASES = {
    "apart": ([WHOLE, torch.zeros(4, 6)], {0, 1}, False),
    "neighbours": ([WHOLE[:2], WHOLE[2:]], {0, 1}, False),
    "overlapping": ([WHOLE[:3], WHOLE[2:]], {1}, True),
    "nobody changes it": ([WHOLE[:3], WHOLE[2:]], set(), False),
    "another is changed": ([WHOLE[:3], WHOLE[2:], torch.zeros(3)], {2}, False),
    "inside": ([WHOLE, WHOLE[1, 2], torch.zeros(3)], {0}, True),
    "through a third": ([WHOLE[:2], WHOLE, WHOLE[3]], {2}, True),
    "transposed": ([WHOLE.t(), WHOLE[3, 5:]], {0}, True),
    "expanded": ([WHOLE[:1].expand(9, 6), WHOLE[1]], {0, 1}, False),
    "of no elements": ([torch.zeros(0), torch.zeros(0)], {0, 1}, False),
    "between one another": ([WHOLE[:, :3], WHOLE[:, 3:]], {0}, True),
}


@pytest.mark.parametrize("name", CASES)
def test_tensors_that_meet(name: str) -> None:
    tensors, changed, expected = CASES[name]
    assert overlapping(tensors, changed) is expected
    last = len(tensors) - 1
    assert overlapping(tensors[::-1], {last - n for n in changed}) is expected
