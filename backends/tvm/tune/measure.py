"""Whether one kernel computes what another does, and whether it is quicker: both on the same memory, by turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge.backends.tvm.loops import Value
from bridge.backends.tvm.memory import torch_dtype

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""By how much results may differ, against the largest of them: float sums are taken in another order."""

LEAST = 2e-4
"""Seconds that one reading takes at least: what is quicker is called several times."""

BETTER = 1.05
"""How many times as quick as ours a kernel has to be measured to be used in its place."""

ROUNDS = 30
"""Readings of each kernel by which one is chosen."""

SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0)

Kernel = Callable[..., Any]


@dataclass(frozen=True)
class Race:
    """Seconds of two kernels, in medians, and how many times as quick the second is: the median, and the quartiles."""

    ours: float
    found: float
    ratio: float
    spread: tuple[float, float]

    @property
    def is_won(self) -> bool:
        """Whether the second is so much quicker that it is no chance: by the ratios, and by the medians."""
        return min(self.ratio, self.ours / self.found) >= BETTER


class Bench:
    """Memory for one kernel's inputs and results."""

    def __init__(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._inputs = [self._random(value) for value in inputs]
        self._outputs = list(outputs)

    def seconds(self, kernel: Kernel, bound: float = float("inf")) -> float:
        """The least of a few readings; of one, where that is above the bound."""
        first = self._reading(kernel, 1)
        if first > bound:  # a first run may take longer than others
            return min(first, self._reading(kernel, 1)) if first < 10 * bound else first
        times = max(1, int(LEAST / max(first, 1e-7)))
        return min(self._reading(kernel, times) for _ in range(3))

    def race(self, ours: Kernel, found: Kernel, rounds: int = ROUNDS) -> Race:
        """Both by turns, each of them first in every other round, so that whatever else the machine does slows both."""
        times = max(1, int(LEAST / max(self._reading(ours, 1), 1e-7)))
        pairs: list[tuple[float, float]] = []
        for number in range(rounds):
            first, second = (ours, found) if number % 2 else (found, ours)
            one, other = self._reading(first, times), self._reading(second, times)
            pairs.append((one, other) if number % 2 else (other, one))
        ratios = sorted(one / other for one, other in pairs)
        quartiles = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        ones, others = zip(*pairs, strict=True)
        return Race(statistics.median(ones), statistics.median(others), statistics.median(ratios), quartiles)

    def agree(self, ours: Kernel, found: Kernel) -> bool:
        """Whether both compute the same of random numbers, and of some among which there are NaN and infinity."""
        special = [self._with_special(x) for x in self._inputs]
        return all(
            _alike(one, other)
            for inputs in (self._inputs, special)
            for one, other in zip(self._results(ours, inputs), self._results(found, inputs), strict=True)
        )

    def _reading(self, kernel: Kernel, times: int) -> float:
        """Seconds of one call. Results go to memory of their own, as in a program."""
        arguments = [*self._inputs, *(_empty(v) for v in self._outputs)]
        started = time.perf_counter()
        for _ in range(times):
            kernel(*arguments)
        return (time.perf_counter() - started) / times

    def _results(self, kernel: Kernel, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = [_empty(v) for v in self._outputs]
        kernel(*inputs, *results)
        return results

    def _random(self, value: Value) -> torch.Tensor:
        dtype, size = torch_dtype(value.dtype), value.reach.constant or 0
        if dtype.is_floating_point:
            line = torch.randn(size, generator=self._generator).to(dtype)
        elif dtype is torch.bool:
            line = torch.rand(size, generator=self._generator) > 0.5
        else:
            line = torch.randint(1, 8, (size,), generator=self._generator).to(dtype)
        return line.as_strided(_numbers(value.shape), _numbers(value.strides))

    def _with_special(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor
        line = tensor.new_empty(0).set_(tensor.untyped_storage()).clone()
        places = torch.randint(0, line.numel(), (len(SPECIAL),), generator=self._generator)
        line[places] = torch.tensor(SPECIAL, dtype=line.dtype)
        return line.as_strided(tensor.shape, tensor.stride())


def _empty(value: Value) -> torch.Tensor:
    return torch.empty_strided(_numbers(value.shape), _numbers(value.strides), dtype=torch_dtype(value.dtype))


def _numbers(sizes: Sequence[Any]) -> list[int]:
    return [size.constant for size in sizes]


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.dtype.is_floating_point:
        return torch.equal(one, other)
    finite = one.double()[one.isfinite()]
    room = TOLERANCE[one.dtype] * (finite.abs().max().item() if finite.numel() else 0.0)
    return torch.allclose(one.double(), other.double(), rtol=0.0, atol=room, equal_nan=True)
