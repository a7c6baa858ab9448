"""How much memory a step takes at most, by torch's own profiler of allocations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.profiler import ProfilerActivity, profile


def peak_bytes(step: Callable[[], object]) -> int:
    """The most bytes at a time that a step has taken and not let go yet.

    What it lets go of and has not taken, such as the last step's gradients, does not count: torch tells of some of it,
    namely what was taken while another step was profiled.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    results: Any = profiler.profiler.kineto_results  # type: ignore[union-attr]
    changes = [event for event in _events(results.experimental_event_tree()) if event.name == "[memory]"]
    taken: dict[int, int] = {}
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_time_ns):
        address, size = change.extra_fields.ptr, change.extra_fields.alloc_size
        if size > 0:
            taken[address] = size
            held += size
        else:
            held -= taken.pop(address, 0)
        peak = max(peak, held)
    return peak


def _events(roots: Iterable[Any]) -> Iterator[Any]:
    pending = list(roots)
    while pending:
        event = pending.pop()
        yield event
        pending.extend(event.children)
