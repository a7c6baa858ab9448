"""Inputs of a recording that may lie elsewhere at each call: copied to where it reads them, or read where they lie.

An input that has lain still through all the calls before the recording is read there, which spares its copy: so it is
with the gradient of a loss, for which torch's allocator has the same memory at each step, and with a batch that is
always laid in the same buffers. Where one of them moves after all, nobody is trusted to lie still any more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types by their bytes, to move what is of several types by one kernel."""


def whereabouts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where and how a tensor lies in memory, negated by a flag or not."""
    return tensor.data_ptr(), tensor.stride(), tensor.is_neg()


class Moving:
    """The inputs at some positions. still: those that the recording reads where they lie. copies: the others' copies.

    Before there is a recording both are empty.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = list(positions)
        self._lay: dict[int, tuple[Any, ...]] = {}
        self._moved: set[int] = set()
        self._trusts = True
        self.clear()

    def clear(self) -> None:
        """There is no recording any more."""
        self.still: dict[int, tuple[Any, ...]] = {}
        self.copies: dict[int, torch.Tensor] = {}
        self._fill = Copying({})

    def see(self, args: Sequence[torch.Tensor]) -> None:
        """Remember where they lie at a call that is not replayed."""
        now = {at: whereabouts(args[at]) for at in self.positions}
        self._moved |= {at for at, place in now.items() if self._lay.get(at, place) != place}
        self._lay = now

    def distrust(self) -> None:
        """From the next recording on copy all of them."""
        self._trusts = False

    def stop(self, positions: Collection[int]) -> None:
        """These do not belong here any more: they are known to stay."""
        self.positions = [at for at in self.positions if at not in positions]

    def arrange(self, args: Sequence[torch.Tensor]) -> None:
        """Copy those that have moved, as a recording is to read them, and remember where the others lie."""
        resting = [at for at in self.positions if self._trusts and at not in self._moved]
        self.still = {at: whereabouts(args[at]) for at in resting}
        self.copies = {at: args[at].detach().clone() for at in self.positions if at not in self.still}
        self._fill = Copying(self.copies)

    def lie_still(self, args: Sequence[torch.Tensor]) -> bool:
        """Whether those that are read in place lie where they lay."""
        return all(whereabouts(args[at]) == place for at, place in self.still.items())

    def fill(self, args: Sequence[torch.Tensor]) -> None:
        """Copy the others to where the recording reads them."""
        self._fill(args)


class Copying:
    """Copies inputs to their copies: those that lie densely by one kernel, whatever their types."""

    def __init__(self, copies: dict[int, torch.Tensor]) -> None:
        dense = {
            at: copy for at, copy in copies.items() if copy.dim() and copy.stride(-1) == 1 and not copy.is_complex()
        }
        self._together = list(dense) if len(dense) > 1 else []
        self._apart = {at: copy for at, copy in copies.items() if at not in self._together}
        self._strides = [dense[at].stride() for at in self._together]
        self._copies = copies
        if self._together:
            self._word = WORDS[math.gcd(*(dense[at].element_size() for at in self._together))]
            self._into = [dense[at].view(self._word) for at in self._together]

    def __call__(self, args: Sequence[torch.Tensor]) -> None:
        apart = self._apart
        if self._together:
            sources = [args[at] for at in self._together]
            plain = not any(s.is_neg() or s._is_zerotensor() for s in sources)
            if plain and [s.stride() for s in sources] == self._strides:
                words = [source.view(self._word) for source in sources]
                torch.ops.aten._foreach_copy_.default(self._into, words)
            else:
                apart = self._copies
        for at, copy in apart.items():
            copy.copy_(args[at])
