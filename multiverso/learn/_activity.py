"""Measures how long a rank computes, waits and communicates, and can trace when it does."""

import contextlib
import time
from collections.abc import Iterator
from typing import Final

#: An activity, its start in Unix time, and its length in seconds.
Event = tuple[str, float, float]

#: A rank computes, waits (for data, other ranks or orders of the master), or communicates.
_ACTIVITIES: Final = ("computing", "waiting", "communicating")


class ActivityTimer:
    """Adds up the `seconds` of each activity; with `trace` it keeps an event for each interval."""

    def __init__(self, trace: bool = False) -> None:
        self.seconds = dict.fromkeys(_ACTIVITIES, 0.0)
        self.events: list[Event] = []
        self._trace = trace
        # perf_counter alone cannot be compared between processes on every platform.
        self._offset = time.time() - time.perf_counter()

    @contextlib.contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Add the time that the `with` block takes to an activity."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            duration = time.perf_counter() - begin
            self.seconds[activity] += duration
            if self._trace:
                self.events.append((activity, self._offset + begin, duration))
