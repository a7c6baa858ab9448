"""What a dry run does to the user's things is undone."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from bridge.runtime.unchanged import unchanged


class Counting(nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("total", torch.tensor([1.0, float("nan")]))
        self.calls = 0
        self.seen: list[int] = [7]
        self.cache = {"kept": torch.zeros(2)}
        self.last: deque[int] = deque([1], maxlen=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        self.cache["new"] = x
        self.cache["kept"].add_(1)
        self.last.append(3)
        self.fresh = x
        self.total.add_(torch.rand(2))
        with torch.no_grad():
            self.linear.weight.mul_(2)
        return x.mul_(random.random() * numpy.random.rand())


def state(module: Counting) -> tuple[Any, ...]:
    tensors = [bytes(tensor.numpy()) for tensor in module.state_dict().values()]
    attributes = sorted(vars(module)), module.calls, list(module.seen), list(module.cache), list(module.last)
    generators = bytes(torch.get_rng_state().numpy()), random.getstate(), str(numpy.random.get_state())
    return tensors, module.cache["kept"].tolist(), attributes, generators


@pytest.mark.parametrize("kind", ["module", "method", "partial", "closure"])
def test_all_of_it_is_put_back(kind: str) -> None:
    module, x = Counting(), torch.ones(2)
    subjects = {"method": module.forward, "partial": partial(module.forward), "closure": lambda x: module(x)}
    subject = subjects.get(kind, module)
    before, kept = state(module), [module.seen, module.linear.weight, module.total, module.cache["kept"]]
    with unchanged(subject, (x,), {}):
        subject(x)
        assert state(module) != before
    assert state(module) == before
    assert all(map(lambda a, b: a is b, kept, [module.seen, module.linear.weight, module.total, module.cache["kept"]]))
    assert x.tolist() == [1, 1]


def test_it_is_put_back_after_an_error() -> None:
    module = Counting()
    before = state(module)
    with pytest.raises(ZeroDivisionError), unchanged(module):  # noqa: PT012
        module(torch.ones(2))
        raise ZeroDivisionError
    assert state(module) == before


def test_what_did_not_change_is_not_written_to() -> None:
    module = Counting()
    version = module.linear.weight._version
    with unchanged(module):
        pass
    assert module.linear.weight._version == version
