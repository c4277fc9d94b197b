"""Measures how long a rank computes, waits and communicates, and can trace when it does."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

#: The index of an activity in `ACTIVITIES`, its start in Unix time, and its length in seconds.
Event = tuple[int, float, float]

#: A rank computes, waits (for data, other ranks or orders of the master), or communicates.
ACTIVITIES: Final = ("computing", "waiting", "communicating")


class ActivityTimer:
    """Adds up the `seconds` of each activity; with `trace` it keeps an event for each interval."""

    def __init__(self, trace: bool = False) -> None:
        self.seconds = dict.fromkeys(ACTIVITIES, 0.0)
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
                self.events.append((ACTIVITIES.index(activity), self._offset + begin, duration))


def chrome_trace(events_of_rank: Mapping[int, Sequence[Event]]) -> dict[str, Any]:
    """Return the events of each rank in the Trace Event Format, which Chrome and Perfetto show."""
    start = min((events[0][1] for events in events_of_rank.values() if events), default=0.0)
    trace: list[dict[str, Any]] = []
    for rank, events in sorted(events_of_rank.items()):
        process = {"name": f"rank {rank}"}
        trace.append({"name": "process_name", "ph": "M", "pid": rank, "args": process})
        for activity, begin, duration in events:
            times = {"ts": round((begin - start) * 1e6, 3), "dur": round(duration * 1e6, 3)}
            trace.append({"name": ACTIVITIES[activity], "ph": "X", "pid": rank, "tid": 0, **times})
    return {"traceEvents": trace, "displayTimeUnit": "ms"}
