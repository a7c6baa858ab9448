"""Sums of many terms that are added one by one, as a gradient is to which each step of a loop adds.

Where nothing is kept of such a sum but its end, all terms lie in memory until the last of them is made. So the sum so
far is kept by the kernel of its last term, if that is a reduction: it then is no value in memory, and costs the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bridge.backends.tvm.loops import Computation, Step, Value
from bridge.backends.tvm.scalar import Load, Operation


def running_sums(
    steps: Sequence[Step], users: Mapping[Value, Sequence[Computation]], required: Collection[Value]
) -> dict[Value, Value]:
    """By sum its last term, for the sums that only another sum reads.

    users: who reads a value, seen through what only moves it. required: the values that are in memory in any case.
    """
    return _Sums(steps, users, required).running()


class _Sums:
    def __init__(
        self, steps: Sequence[Step], users: Mapping[Value, Sequence[Computation]], required: Collection[Value]
    ) -> None:
        self._computations = [step for step in steps if isinstance(step, Computation)]
        self._users, self._required = users, required
        self._made = {step.out: step for step in self._computations}
        self._number = {step.out: number for number, step in enumerate(self._computations)}

    def running(self) -> dict[Value, Value]:
        found: dict[Value, Value] = {}
        for step in self._computations:
            users = self._users.get(step.out, ())
            term = self._last_term(step) if len(users) == 1 and addends(users[0]) else None
            if term is not None and step.out not in self._required:
                found[step.out] = term
        return found

    def _last_term(self, step: Computation) -> Value | None:
        """The reduction that a sum adds to something as large that was there before, if nobody else reads it."""
        terms = [self._origin(value) for value in addends(step)]
        if not terms or terms[0] is terms[1]:
            return None
        if any(term.numel == 1 or term.numel != step.out.numel for term in terms):
            return None
        last = max(terms, key=lambda term: self._number.get(term, -1))
        made = self._made.get(last)
        alone = made is not None and made.reduced and list(self._users.get(last, ())) == [step]
        return last if alone and last not in self._required else None

    def _origin(self, value: Value) -> Value:
        """What a value shows elements of."""
        made = self._made.get(value)
        while made is not None and isinstance(made.body, Load) and not made.reduced:
            value = made.body.value
            made = self._made.get(value)
        return value


def addends(step: Computation) -> list[Value]:
    """The two values that a computation adds element by element, if that is all that it does."""
    body = step.body
    if step.reduced or not isinstance(body, Operation) or body.name != "Add":
        return []
    read = [argument.value for argument in body.arguments if isinstance(argument, Load)]
    return read if len(read) == 2 else []
