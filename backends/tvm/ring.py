"""A ring of slots for a recording's result of one element, such as a loss, so that nobody has to copy it out.

The recording itself writes the result into a slot, another one at each replay, and counts on to the next. Who keeps
some losses keeps their slots, which are passed over; who keeps as many as there are gets copies from then on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from bridge.backends.tvm.memory import holders, storage_of

SLOTS = 32
APART = 512
"""Bytes from one slot to the next: each begins where torch's allocator lets a tensor begin."""


class Ring:
    """Slots like `example`, a tensor of one element. over: a tensor over memory that somebody else keeps, and that
    it keeps from going, which is its second argument."""

    def __init__(
        self,
        example: torch.Tensor,
        device: torch.device,
        over: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> None:
        width = APART // example.element_size()
        memory = torch.zeros(SLOTS + 1, width, dtype=example.dtype, device=device)
        self._column = memory[:, 0]
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._following = torch.tensor([*range(1, SLOTS), 0, SLOTS], device=device)
        self._slots = [_alone(over(memory[n, 0], memory), example.shape, example.stride()) for n in range(SLOTS)]
        self._storages = [storage_of(slot) for slot in self._slots]
        self._unheld = holders(self._storages[0])
        self._number = 0
        self._result: torch.Tensor | None = None

    def write(self, result: torch.Tensor) -> None:
        """What is recorded: put the result into the slot that it is the turn of."""
        self._result = result
        self._column.index_copy_(0, self._at, result.detach().reshape(1))
        self._at.copy_(self._following.index_select(0, self._at))

    def turn(self) -> None:
        """Before a replay: see to it that nobody holds the slot that it fills."""
        if self._number == SLOTS or self._is_free(self._number):
            return
        self._number = next((n for n in range(SLOTS) if self._is_free(n)), SLOTS)
        self._at.fill_(self._number)

    def give(self) -> torch.Tensor:
        """After a replay: the result, in memory that stays as it is while somebody holds it."""
        number = self._number
        if number == SLOTS:
            assert self._result is not None
            return self._result.clone()
        self._number = (number + 1) % SLOTS
        return self._slots[number].detach()

    def _is_free(self, number: int) -> bool:
        return holders(self._storages[number]) == self._unheld


def _alone(tensor: torch.Tensor, shape: torch.Size, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor's memory as a tensor that is no view, so that what is given of it can be written over."""
    alone = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return alone.set_(tensor.untyped_storage(), tensor.storage_offset(), shape, strides)
