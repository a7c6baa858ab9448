"""All events of one compiled object, in the order in which they happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.ledger.event import DeadEnd, Event


class Ledger:
    """A list of events that only grows. Iterate over it, or select from it."""

    def __init__(self, events: list[Event] | None = None) -> None:
        self._events: list[Event] = list(events or [])

    def record(self, event: Event) -> None:
        """Add one event."""
        self._events.append(event)

    @property
    def events(self) -> tuple[Event, ...]:
        """What was recorded so far."""
        return tuple(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self._events)

    def __repr__(self) -> str:
        met = ", ".join(f"{dead_end} {count}" for dead_end, count in self.count().items() if count)
        return f"<ledger of {len(self)} event{'s' * (len(self) != 1)}{': ' + met if met else ''}>"

    def select(self, **wanted: object) -> tuple[Event, ...]:
        """The events whose fields equal all that is given: `ledger.select(dead_end="coverage", phase="backward")`."""
        return tuple(e for e in self.events if all(getattr(e, name) == value for name, value in wanted.items()))

    def count(self) -> dict[DeadEnd, int]:
        """How often each dead end was met, all five of them named."""
        met: Counter[DeadEnd] = Counter()
        for event in self.events:
            met[event.dead_end] += event.count
        return {dead_end: met[dead_end] for dead_end in DeadEnd}
