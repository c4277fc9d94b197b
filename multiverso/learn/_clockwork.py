"""Where a worker's time goes: computing, waiting, communicating; with a trace if wanted."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["KINDS", "Clockwork", "chrome_trace"]

#: What a worker does. Waiting is for data, for other workers, and for the master's word.
KINDS: Final = ("computing", "waiting", "communicating")


class Clockwork:
    """Adds up the seconds of each kind.

    Parameters
    ----------
    trace : bool
        Whether to keep the beginning and the length of every stretch.

    Attributes
    ----------
    seconds : dict of str to float
        By kind.
    events : list of (int, float, float)
        Place of the kind in `KINDS`, beginning (seconds since the epoch of Unix) and length.

    """

    def __init__(self, trace: bool = False) -> None:
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.events: list[tuple[int, float, float]] = []
        self._trace = trace
        # Comparable between the processes of a machine, unlike perf_counter elsewhere.
        self._offset = time.time() - time.perf_counter()

    @contextlib.contextmanager
    def measure(self, kind: str) -> Iterator[None]:
        """Add the time that the block takes."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            length = time.perf_counter() - begin
            self.seconds[kind] += length
            if self._trace:
                self.events.append((KINDS.index(kind), self._offset + begin, length))


def chrome_trace(ranks: dict[int, list[tuple[int, float, float]]]) -> dict[str, Any]:
    """Return the events of each rank in the Trace Event Format, which Chrome and Perfetto show."""
    start = min((events[0][1] for events in ranks.values() if events), default=0.0)
    trace: list[dict[str, Any]] = []
    for rank, events in sorted(ranks.items()):
        trace.append(
            {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}
        )
        for kind, begin, length in events:
            trace.append(
                {
                    "name": KINDS[kind],
                    "ph": "X",
                    "pid": rank,
                    "tid": 0,
                    "ts": round((begin - start) * 1e6, 3),
                    "dur": round(length * 1e6, 3),
                }
            )
    return {"traceEvents": trace, "displayTimeUnit": "ms"}
