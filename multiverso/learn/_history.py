"""The history of a training, which the command writes as JSON: metrics, counts and times."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from multiverso._version import __version__

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


class History:
    """Collects metrics, counts and times of a training.

    Attributes
    ----------
    metrics : dict of str to list of float
        One value for each epoch by name, as in the history of ``model.fit``. Names of validation
        metrics begin with ``val_``. The value is None if an epoch has no value.
    epochs : list of dict
        For each epoch: its number from 1, its seconds, seconds since the start, samples, updates.
    validations : list of dict
        For each validation: epoch, updates, seconds since the start, and the metrics.
    workers : list of dict
        For each worker: rank, samples, updates, and the seconds computing, waiting, communicating.
    staleness : dict of int to int
        The number of updates of all workers with each staleness, as `Worker` defines it.
    first_epoch : int
        The first epoch, counted from 0: the number of epochs before the restored checkpoint, or 0.

    """

    def __init__(self, first_epoch: int = 0) -> None:
        self.metrics: dict[str, list[float | None]] = {}
        self.epochs: list[dict[str, Any]] = []
        self.validations: list[dict[str, Any]] = []
        self.workers: list[dict[str, Any]] = []
        self.staleness: Counter[int] = Counter()
        self.first_epoch = first_epoch
        self._events: dict[int, list[Event]] = {}
        self._start = self._epoch_start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def add_epoch(self, epoch: int, samples: int, updates: int, logs: dict[str, float]) -> None:
        """Record an epoch that has ended."""
        now = time.perf_counter()
        seconds = now - self._epoch_start
        self.epochs.append(
            {
                "epoch": epoch + 1,
                "seconds": seconds,
                "time": now - self._start,
                "samples": samples,
                "updates": updates,
                "samples_per_second": samples / seconds if seconds > 0 else None,
            }
        )
        self._epoch_start = now
        for name in logs:
            self.metrics.setdefault(name, [None] * (len(self.epochs) - 1))
        for name, values in self.metrics.items():
            values.append(logs.get(name))

    def add_validation(self, epoch: int, updates: int, results: dict[str, float]) -> None:
        """Record a validation."""
        self.validations.append(
            {"epoch": epoch + 1, "updates": updates, "time": self.seconds, **results}
        )

    def add_worker(self, rank: int, totals: dict[str, Any]) -> None:
        """Record the totals of a worker, with its events; workers are added in rank order."""
        self._events[rank] = totals["events"]
        staleness = Counter(dict(totals["staleness"]))
        self.staleness += staleness
        counts = {"rank": rank, "samples": totals["samples"], "updates": staleness.total()}
        self.workers.append({**counts, **totals["seconds"]})

    def as_dict(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the JSON file, with the arguments of the training."""
        return {
            "multiverso": __version__,
            "args": arguments,
            "first_epoch": self.first_epoch + 1,
            "history": self.metrics,
            "epochs": self.epochs,
            "validations": self.validations,
            "staleness": {str(number): count for number, count in sorted(self.staleness.items())},
            "workers": self.workers,
            "train_time": self.epochs[-1]["time"] if self.epochs else 0.0,
        }

    def trace(self) -> dict[str, Any]:
        """Return what the workers did in the Trace Event Format, which Chrome and Perfetto show."""
        start = min((events[0][1] for events in self._events.values() if events), default=0.0)
        trace: list[dict[str, Any]] = []
        for rank, events in self._events.items():
            process = {"name": f"rank {rank}"}
            trace.append({"name": "process_name", "ph": "M", "pid": rank, "args": process})
            for activity, begin, duration in events:
                times = {"ts": round((begin - start) * 1e6, 3), "dur": round(duration * 1e6, 3)}
                trace.append({"name": activity, "ph": "X", "pid": rank, "tid": 0, **times})
        return {"traceEvents": trace, "displayTimeUnit": "ms"}


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically.

    Numbers that are not finite become null, and values of types that JSON lacks become text.
    """
    # Python writes NaN and infinities as names that JSON lacks, and can read them as null.
    written = json.dumps(value, default=str)
    text = json.dumps(json.loads(written, parse_constant=lambda name: None), indent=2)
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(text + "\n", "utf-8")
    unfinished.replace(path)
