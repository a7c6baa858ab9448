"""How much memory a step takes at most, by torch's own profiler of allocations."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(step: Callable[[], object]) -> int:
    """The most bytes that a step holds at a time beyond those that were held when it began. Runs it twice.

    torch tells of what is let go only if it saw it taken, so whatever the step leaves behind, such as gradients, has to
    go before the same step is profiled again.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    step()
    changes = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()  # type: ignore[attr-defined]
        peak = max(peak, held)
    return peak
