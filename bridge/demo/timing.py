"""Time several things against one another on a machine that does not hold still."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

WARM_UP = 2


def interleaved(
    calls: Mapping[str, Callable[[], object]], rounds: int, each_round: Callable[[], object] = lambda: None
) -> dict[str, tuple[float, ...]]:
    """Seconds of each call, `rounds` times, after two rounds that are not counted.

    The calls take turns within a round, and each round begins with another one, so that all meet the same machine.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds + WARM_UP):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = perf_counter()
            calls[name]()
            times[name].append(perf_counter() - start)
        each_round()
    return {name: tuple(readings[WARM_UP:]) for name, readings in times.items()}
