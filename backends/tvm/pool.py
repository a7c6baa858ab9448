"""The memory of recordings: that of a forward and that of its backward are one pool, as they are one step's.

A backward may then compute where its forward did, and where that kept what was saved, once nobody reads it any more: as
in a step that nobody records. So either of them, replayed, destroys what the other has given. A forward is replayed
where nobody holds the gradients of the last step, a backward where nobody else holds what it is given as saved. Who
keeps gradients while the next forward runs gets recordings with a pool each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any, Protocol

import torch

from bridge.backends.tvm.memory import holders, keeps_graph, storage_of
from bridge.ir.joint import Phase


class Recording(Protocol):
    """What a pool knows of the programs that are recorded in it."""

    def is_unheld(self) -> bool:
        """Whether nobody holds what the recording gave last."""
        ...

    def forget(self) -> None:
        """Let go of the recording, to make another one."""
        ...

    def start_over(self) -> None:
        """Let go of it too, and count no recording that was made before."""
        ...

    def saves(self) -> dict[int, int]:
        """The storages that the recording keeps for what is saved; how many hold each if nobody else does."""
        ...

    def let_go(self) -> dict[int, int]:
        """Give what is saved back to the pool. The same of the storages over it, from now on."""
        ...


class Pool:
    """The pool of a forward's recording and its backward's. new: makes the handle of one.

    lock: held by who runs either of them.
    """

    def __init__(self, new: Callable[[], Any] | None = None) -> None:
        self._new = new or torch.cuda.graph_pool_handle
        self.lock = RLock()
        self._members: dict[Phase, Recording] = {}
        self._apart = False
        self._begin()

    def _begin(self) -> None:
        self._handle: Any = None
        self._copied: set[int] = set()
        self._given_back: list[int] = []
        self._counts: list[int] = []

    def join(self, recording: Recording, phase: Phase) -> bool:
        """Whether a program takes part: one forward and one backward do."""
        if phase not in (Phase.FORWARD, Phase.BACKWARD) or phase in self._members:
            return False
        self._members[phase] = recording
        return True

    def handle(self) -> Any:
        """Where to record; None for a pool of its own."""
        if self._apart:
            return None
        if self._handle is None:
            self._handle = self._new()
        return self._handle

    def destroys(self, phase: Phase) -> bool:
        """Whether a replay would destroy what somebody holds. Gradients that are held set the two apart for good."""
        if self._apart:
            return False
        if phase is Phase.FORWARD:
            backward = self._members.get(Phase.BACKWARD)
            if backward is None or backward.is_unheld():
                return False
            self._apart = True
            self.start_over()
            return True
        return bool(self._given_back) and (keeps_graph() or list(map(holders, self._given_back)) != self._counts)

    def note_copies(self, copies: Iterable[torch.Tensor]) -> None:
        """Remember where a forward's recording reads what is copied for it."""
        self._copied = {copy.data_ptr() for copy in copies}

    def has_copy(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies where the forward's recording has its copy, which it gives as what it saves."""
        return tensor.data_ptr() in self._copied

    def forget(self) -> None:
        """Let go of all the recordings: what lies in the pool of one was laid out for the others."""
        for member in self._members.values():
            member.forget()
        self._begin()

    def start_over(self) -> None:
        """The same, where none of them is to blame."""
        for member in self._members.values():
            member.start_over()
        self._begin()

    def passing(self, args: Sequence[Any], positions: Sequence[int]) -> list[int]:
        """Which of a backward's inputs its forward's recording has saved for it and nobody else: these may go."""
        forward = self._members.get(Phase.FORWARD)
        if self._apart or forward is None or keeps_graph():
            return []
        saved = forward.saves()
        storages = [(at, storage_of(args[at])) for at in positions]
        return [at for at, storage in storages if storage in saved and holders(storage) == saved[storage] + 1]

    def give_back(self) -> None:
        """What the forward's recording saved is from now on the pool's, from where its last reader lets go of it."""
        unheld = self._members[Phase.FORWARD].let_go()
        self._given_back = list(unheld)
        self._counts = [count + 1 for count in unheld.values()]  # as a backward is called that is given each of them


class _Bytes:
    """Memory of a GPU as it lies there, kept by somebody else, or by `keeper`."""

    def __init__(self, address: int, size: int, keeper: torch.Tensor | None) -> None:
        self.keeper = keeper
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None, "stream": None,
        }  # fmt: skip


def over(tensor: torch.Tensor, keeper: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor over the memory of another, which it does not keep, but by a tensor `keeper` that it holds."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    if not reach:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    whole = torch.as_tensor(_Bytes(tensor.data_ptr(), reach * tensor.element_size(), keeper), device=tensor.device)
    return whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
